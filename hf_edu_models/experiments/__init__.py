"""Experiments that train models to reproduce a figure or table of a paper (`hf-edu figure`), and the demo."""
