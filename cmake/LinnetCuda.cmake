# linnet_cuda: the kernels for device memory (kernels/*_cuda.cu, optim/*_cuda.cu). nvcc is called by rules of our own: they
# work on machines without GPU and driver, and keep what tests/cuda looks at, the assembler's report and the PTX. One PTX
# (sm_80) is translated for every architecture below and travels along for newer ones.
set(LINNET_CUDA_ARCHITECTURES sm_80 sm_90 sm_100 CACHE STRING "what liblinnet_cuda is compiled for")
set(LINNET_CUDA_LOGS ${PROJECT_BINARY_DIR}/cuda CACHE INTERNAL "reports of the assembler, PTX")

# The same arithmetic as on the host: no contraction, and nothing approximate.
set(linnet_cuda_flags -std=c++17 -O3 -fmad=false -Xptxas -v
  -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra
  -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/include)
if(LINNET_WERROR)
  list(APPEND linnet_cuda_flags -Werror all-warnings)
endif()
list(JOIN LINNET_CUDA_ARCHITECTURES "," linnet_cuda_codes)
list(APPEND linnet_cuda_flags "-gencode=arch=compute_80,code=[${linnet_cuda_codes},compute_80]")

# linnet_cuda_object(FILE.cu LIST): compiles it and appends its object to the list. Errors show; the report goes to
# cuda/<name>.log.
function(linnet_cuda_object source list_name)
  get_filename_component(name ${source} NAME_WE)
  set(object ${LINNET_CUDA_LOGS}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/nvcc_logged.sh ${LINNET_CUDA_LOGS}/${name}.log ${CUDAToolkit_NVCC_EXECUTABLE}
      ${linnet_cuda_flags} --keep --keep-dir ${LINNET_CUDA_LOGS}/${name} -MD -MT ${object} -MF ${object}.d -c ${source} -o
      ${object}
    DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/nvcc_logged.sh
    DEPFILE ${object}.d
    COMMENT "nvcc ${name}"
    VERBATIM)
  set(${list_name} ${${list_name}} ${object} PARENT_SCOPE)
endfunction()

function(linnet_cuda_library)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*_cuda.cu ${PROJECT_SOURCE_DIR}/optim/*_cuda.cu)
  set(objects "")
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    file(MAKE_DIRECTORY ${LINNET_CUDA_LOGS}/${name})
    linnet_cuda_object(${source} objects)
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_library(linnet_cuda SHARED ${objects})
  target_link_libraries(linnet_cuda PRIVATE CUDA::cudart stdc++) # nvcc's stubs are C++
  target_link_options(linnet_cuda PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/linnet.map -Wl,-z,defs)
  set_target_properties(linnet_cuda PROPERTIES LINKER_LANGUAGE C VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME cuda INSTALL_RPATH "$ORIGIN")
  add_library(linnet::cuda ALIAS linnet_cuda)
endfunction()

# What a sanitizer would watch is the host's side of a launch alone; the kernels are watched by tests/cuda_on_cpu.
if(LINNET_HAVE_CUDA AND NOT LINNET_SANITIZE)
  linnet_cuda_library()
elseif(LINNET_HAVE_CUDA)
  message(STATUS "linnet part CUDA: no library under a sanitizer")
endif()
