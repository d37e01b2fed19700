# Values out of linnet-bert's JSON lines: flat objects, keys without special characters.
function has(line, key) { return index(line, "\"" key "\":") > 0 }

function text(line, key,    at) {
    at = index(line, "\"" key "\": ")
    if (at == 0) return ""
    line = substr(line, at + length(key) + 4)
    sub(/^"/, "", line)
    sub(/["]?[,}].*$/, "", line)
    return line
}

function number(line, key) { return text(line, key) + 0 }
