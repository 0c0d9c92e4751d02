"""What the HTML pages share: one file that opens from disk, asks for nothing, and keeps user text as text."""
