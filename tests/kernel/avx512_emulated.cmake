# The AVX-512 kernels on processors without AVX-512: the same sources against emulated intrinsics (avx512_emulated.h), linked
# before the library, whose own objects of these names are then not taken. Tests that walk all implementations run once more.
set(emulated_tests kernel/test_codec_matrix kernel/test_codec_pieces kernel/test_decode_matrix kernel/test_array_ops
  optim/test_update_rules)
find_path(LINNET_SIMDE_INCLUDE simde/x86/avx512.h)
set(absent "AVX-512 is emulated with SIMDe (libsimde-dev) on x86-64 only")
if(LINNET_SANITIZE)
  # SIMDe counts on signed products that wrap, and its code takes minutes to compile with checks in it.
  set(absent "emulated intrinsics are not built with a sanitizer: the guard pages of the ordinary build watch their memory")
endif()

if(LINNET_SIMDE_INCLUDE AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT LINNET_SANITIZE)
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*_avx512.c ${PROJECT_SOURCE_DIR}/optim/*_avx512.c)
  list(FILTER kernels EXCLUDE REGEX "/cpu_avx512\\.c$")
  add_library(avx512_emulated OBJECT ${kernels} ${CMAKE_CURRENT_LIST_DIR}/avx512_emulated.c)
  target_link_libraries(avx512_emulated PRIVATE linnet_flags)
  target_include_directories(avx512_emulated SYSTEM PRIVATE ${LINNET_SIMDE_INCLUDE})
  target_compile_options(avx512_emulated PRIVATE ${LINNET_FLAGS_avx2} -Wno-psabi
    -include ${CMAKE_CURRENT_LIST_DIR}/avx512_emulated.h)
endif()

foreach(path ${emulated_tests})
  get_filename_component(label ${path} DIRECTORY)
  get_filename_component(name ${path} NAME)
  if(TARGET avx512_emulated)
    add_executable(${name}_avx512_emulated ${path}.c $<TARGET_OBJECTS:avx512_emulated>)
    target_link_libraries(${name}_avx512_emulated PRIVATE linnet_static PkgConfig::CHECK)
    target_include_directories(${name}_avx512_emulated PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_compile_definitions(${name}_avx512_emulated PRIVATE
      LNT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LNT_BINARY_DIR="${PROJECT_BINARY_DIR}")
    add_test(NAME ${label}.${name}_avx512_emulated COMMAND ${name}_avx512_emulated)
    linnet_test_properties(${label}.${name}_avx512_emulated ${label} 300)
  else()
    linnet_test_absent(${label}.${name}_avx512_emulated ${label} "${absent}")
  endif()
endforeach()
