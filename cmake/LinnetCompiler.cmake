# Flags for every target: linnet_flags. Kernels and update rules must give the same bytes everywhere: no contraction.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# CMake's own RelWithDebInfo turns assertions off; ours is what developers and tests run, so they stay on. Release has none.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

find_package(Threads REQUIRED)
add_library(linnet_flags INTERFACE)
target_compile_definitions(linnet_flags INTERFACE _GNU_SOURCE)
# In C both compilers count -Wsign-conversion to -Wconversion. It stays off: it finds no lost value, only casts between int and
# size_t of numbers that are known to be small, and those casts would hide the narrowing that -Wconversion is there to find.
target_compile_options(linnet_flags INTERFACE
  -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
  -ffp-contract=off -fno-math-errno)
if(LINNET_WERROR)
  target_compile_options(linnet_flags INTERFACE -Werror)
endif()
if(LINNET_SANITIZE)
  target_compile_options(linnet_flags INTERFACE -fsanitize=${LINNET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(linnet_flags INTERFACE -fsanitize=${LINNET_SANITIZE})
endif()
target_include_directories(linnet_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)

# Modules are loaded by name at run time: programs of the build tree find them in src/, installed ones in the library folder.
set(CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR}/src)
file(RELATIVE_PATH linnet_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${linnet_bin_to_lib}")
