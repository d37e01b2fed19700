# Flags of vector kernels: by the name of the file, <name>_avx2.c and <name>_avx512.c in kernels/ and optim/. Only these
# files may hold such instructions: everything else runs on every processor. -O3 also where a build asks for less: these
# are loops over intrinsics, which mean little unless inlined. Nothing here allows contraction.
set(LINNET_FLAGS_avx2 -O3 -mavx2 -mfma -mf16c)
set(LINNET_FLAGS_avx512 ${LINNET_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)

# linnet_simd_sources(VARIABLE): give the vector kernels among the sources their flags; on machines other than x86-64, take
# them out.
function(linnet_simd_sources variable)
  foreach(isa avx2 avx512)
    set(kernels ${${variable}})
    list(FILTER kernels INCLUDE REGEX "_${isa}\\.c$")
    list(FILTER kernels EXCLUDE REGEX "/cpu_[a-z0-9]*\\.c$") # these ask, and so must run anywhere
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
      set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "${LINNET_FLAGS_${isa}}")
    else()
      list(REMOVE_ITEM ${variable} ${kernels} "")
    endif()
  endforeach()
  set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()
