#!/usr/bin/env python3
"""Prints a TCP port that nobody listens on at this moment."""
import socket

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1])
