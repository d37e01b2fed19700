#!/bin/sh
# The first C program of README.md compiles without a warning and links. readme_example.sh README CC HEADERS GENERATED LIBRARY
set -eu
awk '/^```c$/ { inside = 1; next } /^```/ { if (inside) exit } inside' "$1" >readme_example.c
[ -s readme_example.c ] || { echo "README.md has no C program"; exit 1; }
"$2" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$3" -I"$4" readme_example.c "$5" -o readme_example
echo "$(wc -l <readme_example.c) lines"
