# Install rules, pkg-config file and CMake package.
