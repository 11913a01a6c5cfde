# oneDNN: DNNL_LIBRARY and DNNL_INCLUDE, found by hand because find_package(dnnl) requires OpenCL
# headers on Debian 12. Versions 2.6 to 3.x, built for OpenMP: other runtimes would compile and ignore the
# number of threads. The caller reports a missing library, together with all that is missing.
find_library(DNNL_LIBRARY dnnl)
find_path(DNNL_INCLUDE dnnl.h)
if(NOT DNNL_INCLUDE)
  return()
endif()

# dnnl_value(OUT HEADER NAME): what the header defines as NAME, "" if it does not.
function(dnnl_value out header name)
  set(line)
  if(EXISTS ${DNNL_INCLUDE}/oneapi/dnnl/${header})
    file(STRINGS ${DNNL_INCLUDE}/oneapi/dnnl/${header} line REGEX "^#define +${name} ")
  endif()
  string(REGEX REPLACE "^#define +[A-Z_]+ +" "" line "${line}")
  set(${out} "${line}" PARENT_SCOPE)
endfunction()
dnnl_value(major dnnl_version.h DNNL_VERSION_MAJOR)
dnnl_value(minor dnnl_version.h DNNL_VERSION_MINOR)
dnnl_value(runtime dnnl_config.h DNNL_CPU_THREADING_RUNTIME)
set(remedy "Debian's libdnnl-dev serves; name another one by -DDNNL_INCLUDE=FOLDER -DDNNL_LIBRARY=FILE.")
if(NOT major)
  set(major "a version before 2") # its headers lay elsewhere
endif()
if("${major}.${minor}" VERSION_LESS 2.6 OR "${major}" VERSION_GREATER 3)
  message(FATAL_ERROR "${DNNL_INCLUDE}: oneDNN ${major}.${minor} is not supported, 2.6 to 3.x are. ${remedy}")
endif()
if(NOT runtime STREQUAL DNNL_RUNTIME_OMP)
  message(FATAL_ERROR "${DNNL_INCLUDE}: this oneDNN computes by ${runtime}, not by OpenMP (DNNL_RUNTIME_OMP): "
    "it would not obey the number of threads of a run. ${remedy} "
    "Built from source it is right with -DDNNL_CPU_RUNTIME=OMP.")
endif()
