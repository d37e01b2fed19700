# Kernels on the host: finds a C++ compiler that matches the C compiler, builds the layer, and defines
# linnet_emulated_kernels(). C++ is a language of this part of the tests only. Result: LINNET_HAVE_EMULATION, and
# LINNET_NO_EMULATION_WHY where there is none.
include(CheckLanguage)
set(LINNET_HAVE_EMULATION OFF)
set(emulation_dir ${CMAKE_CURRENT_LIST_DIR})

# gcc-12 belongs to g++-12, clang-14 to clang++-14: sanitizers of two compilers do not mix in one program.
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  string(REGEX REPLACE "clang([^/]*)$" "clang++\\1" cxx_name "${CMAKE_C_COMPILER}")
  string(REGEX REPLACE "gcc([^/]*)$" "g++\\1" cxx_name "${cxx_name}")
  string(REGEX REPLACE "/cc$" "/c++" cxx_name "${cxx_name}")
  if(NOT cxx_name STREQUAL CMAKE_C_COMPILER AND EXISTS ${cxx_name})
    set(CMAKE_CXX_COMPILER ${cxx_name})
  endif()
endif()
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  if(CMAKE_CXX_COMPILER_ID STREQUAL CMAKE_C_COMPILER_ID)
    set(LINNET_HAVE_EMULATION ON)
  else()
    set(LINNET_NO_EMULATION_WHY "C++ compiler ${CMAKE_CXX_COMPILER_ID} does not match C compiler ${CMAKE_C_COMPILER_ID}")
  endif()
else()
  set(LINNET_NO_EMULATION_WHY "there is no C++ compiler to run CUDA kernels on the host with (g++)")
endif()
if(NOT LINNET_HAVE_EMULATION)
  return()
endif()

# No exceptions, type information or guarded statics: nothing of this needs the C++ library.
set(emulation_options -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -ffp-contract=off -fno-math-errno
  -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-lto)
if(LINNET_WERROR)
  list(APPEND emulation_options -Werror)
endif()

# The layer itself: never instrumented, it switches stacks under the sanitizers' feet and tells them so.
file(GLOB emulation_sources CONFIGURE_DEPENDS ${emulation_dir}/emu_*.cc)
function(linnet_emulation_library name)
  add_library(${name} STATIC ${emulation_sources})
  target_compile_features(${name} PRIVATE cxx_std_17)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE ${ARGN}
    $<$<BOOL:${LINNET_EMULATION_ASAN}>:LNT_EMU_ASAN> $<$<BOOL:${LINNET_EMULATION_TSAN}>:LNT_EMU_TSAN>)
  target_compile_options(${name} PRIVATE ${emulation_options})
  target_include_directories(${name} PUBLIC ${emulation_dir}/include)
  target_link_libraries(${name} PUBLIC Threads::Threads)
endfunction()
string(FIND "${LINNET_SANITIZE}" "address" found)
if(found GREATER -1)
  set(LINNET_EMULATION_ASAN ON)
endif()
string(FIND "${LINNET_SANITIZE}" "thread" found)
if(found GREATER -1)
  set(LINNET_EMULATION_TSAN ON)
endif()
linnet_emulation_library(linnet_emulation)

# linnet_emulated_kernels(TARGET file.cu...): a static library of kernels and their extern "C" launchers that run on the
# host. C programs link it and include <cuda_runtime.h> for cudaMalloc and the rest. Instrumented as LINNET_SANITIZE says.
function(linnet_emulated_kernels target)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  add_library(${target} STATIC ${ARGN})
  target_compile_features(${target} PRIVATE cxx_std_17)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE ${emulation_options} -fno-strict-aliasing)
  if(LINNET_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${LINNET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} INTERFACE -fsanitize=${LINNET_SANITIZE})
  endif()
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC linnet_emulation)
endfunction()

# linnet_emulated_test(NAME program label timeout): the program once for each order of threads. Order "random" is for programs
# that draw a seed (emu_testing.h).
function(linnet_emulated_test name program label timeout)
  foreach(order forward reverse random)
    add_test(NAME ${label}.${name}_${order} COMMAND ${program})
    linnet_test_properties(${label}.${name}_${order} ${label} ${timeout})
    set_tests_properties(${label}.${name}_${order} PROPERTIES ENVIRONMENT "${test_environment};LNT_EMU_ORDER=${order}")
  endforeach()
endfunction()
