# Optional parts. Each LINNET_WITH_<part> is AUTO (use it when found), ON (missing is an error) or OFF, and what became of
# it is said aloud. Results: LINNET_HAVE_<part>, and LINNET_PARTS, the text that lnt_build_info shows.
find_package(PkgConfig)

# Says what was found, and stops when a part that was asked for is missing.
function(linnet_report part found detail cure)
  if(found)
    message(STATUS "linnet part ${part}: yes, ${detail}")
  elseif(LINNET_WITH_${part} STREQUAL "ON")
    message(FATAL_ERROR "LINNET_WITH_${part}=ON, but it was not found. ${cure}, or set LINNET_WITH_${part} to AUTO or OFF.")
  elseif(LINNET_WITH_${part} STREQUAL "AUTO")
    message(STATUS "linnet part ${part}: no, not found. ${cure} to have it")
  elseif(LINNET_WITH_${part} STREQUAL "OFF")
    message(STATUS "linnet part ${part}: no, switched off")
  else()
    message(FATAL_ERROR "LINNET_WITH_${part} is \"${LINNET_WITH_${part}}\": use AUTO, ON or OFF.")
  endif()
endfunction()

# A part that pkg-config knows.
macro(linnet_pkg_part part package cure)
  set(LINNET_HAVE_${part} OFF)
  if(NOT LINNET_WITH_${part} STREQUAL "OFF" AND PKG_CONFIG_FOUND)
    pkg_check_modules(LINNET_${part} QUIET IMPORTED_TARGET ${package})
    set(LINNET_HAVE_${part} ${LINNET_${part}_FOUND})
  endif()
  linnet_report(${part} "${LINNET_HAVE_${part}}" "${package} ${LINNET_${part}_VERSION}" "${cure}")
endmacro()

linnet_pkg_part(UCX ucx "Install UCX (Debian: libucx-dev)")
linnet_pkg_part(SODIUM libsodium "Install libsodium (Debian: libsodium-dev)")
linnet_pkg_part(HWLOC hwloc "Install hwloc (Debian: libhwloc-dev)")

set(LINNET_HAVE_MPI OFF)
if(NOT LINNET_WITH_MPI STREQUAL "OFF")
  find_package(MPI QUIET COMPONENTS C)
  set(LINNET_HAVE_MPI ${MPI_C_FOUND})
endif()
linnet_report(MPI "${LINNET_HAVE_MPI}" "MPI ${MPI_C_VERSION}" "Install MPI (Debian: libopenmpi-dev openmpi-bin)")

# sm_100 needs 12.8. A toolkit without its compiler, or one for another machine, is none.
set(LINNET_HAVE_CUDA OFF)
if(NOT LINNET_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.8 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart)
    set(LINNET_HAVE_CUDA ON)
  endif()
endif()
linnet_report(CUDA "${LINNET_HAVE_CUDA}" "CUDA ${CUDAToolkit_VERSION}" "Install the CUDA toolkit, 12.8 or later")

# Found, but no code asks for it yet: somebody who switched it on must hear it.
if(LINNET_HAVE_HWLOC AND LINNET_WITH_HWLOC STREQUAL "ON")
  message(WARNING "linnet part HWLOC: found, but version ${PROJECT_VERSION} has no code that uses it.")
elseif(LINNET_HAVE_HWLOC)
  message(STATUS "linnet part HWLOC: not used by version ${PROJECT_VERSION}")
endif()

set(LINNET_PARTS "")
foreach(part UCX MPI SODIUM CUDA)
  if(LINNET_HAVE_${part})
    string(TOLOWER ${part} lower)
    list(APPEND LINNET_PARTS ${lower})
  endif()
endforeach()
list(JOIN LINNET_PARTS " " LINNET_PARTS)
if(LINNET_PARTS STREQUAL "")
  set(LINNET_PARTS "none")
endif()
