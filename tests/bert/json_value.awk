# The value of `key` in every line that has it.
has($0, key) { print text($0, key) }
