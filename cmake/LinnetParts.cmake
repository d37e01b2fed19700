# Optional parts: found or not, each said aloud.
