#!/bin/sh
# docs/config.md is what linnet-info prints from the tables: check_config_doc.sh LINNET_INFO CONFIG_MD
set -u
if ! "$1" --config-md >config_current.md; then
    echo "$1 --config-md failed"
    exit 1
fi
if ! diff -u "$2" config_current.md; then
    echo "docs/config.md is not current. Renew it: linnet-info --config-md > docs/config.md"
    exit 1
fi
