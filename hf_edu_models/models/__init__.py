"""The models. This folder travels to the Hub: it imports only torch, transformers and its own siblings."""
