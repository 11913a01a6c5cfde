# Files of `make install`: command, libraries, headers, man page, completion, and the two ways
# in which other projects find them, forerun.pc and forerunConfig.cmake. Both work in any
# folder: `cmake --install build --prefix DIR` needs no other configuration.
include(CMakePackageConfigHelpers)

# Libraries that a program with the static one links as well: by pkg-config, and as flags.
set(FR_PC_MODULES "libfyaml jansson nettle libxxhash zlib")
set(needs ${DNNL_LIBRARY} ${OpenMP_C_LIBRARIES})
if(MPI_C_FOUND)
  list(APPEND needs ${MPI_C_LIBRARIES})
endif()
if(MICROHTTPD_FOUND)
  list(APPEND needs ${MICROHTTPD_LINK_LIBRARIES}) # its own .pc asks for all that GnuTLS is made of
endif()
set(flags)
foreach(file ${needs})
  get_filename_component(folder "${file}" DIRECTORY)
  get_filename_component(name "${file}" NAME)
  string(REGEX REPLACE "^lib(.+)\\.(so|a)(\\.[0-9.]+)?$" "\\1" name "${name}")
  if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    string(REPLACE " " "\\ " folder "${folder}")
    list(APPEND flags "-L${folder}")
  endif()
  list(APPEND flags "-l${name}")
endforeach()
list(APPEND flags -lpthread -lm)
if(CBC_FOUND)
  foreach(name ${CMAKE_DL_LIBS}) # it is loaded at run time
    list(APPEND flags -l${name})
  endforeach()
endif()
list(REMOVE_DUPLICATES flags)
list(JOIN flags " " FR_PC_FLAGS)
file(RELATIVE_PATH FR_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" FR_PC_UP ${FR_PC_UP})
configure_file(cmake/forerun.pc.in forerun.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/forerun.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(cmake_files ${CMAKE_INSTALL_LIBDIR}/cmake/forerun)
install(TARGETS forerun_shared EXPORT forerunShared)
install(TARGETS forerun_static EXPORT forerunStatic)
foreach(kind Shared Static)
  install(EXPORT forerun${kind} NAMESPACE forerun:: DESTINATION ${cmake_files})
endforeach()
configure_package_config_file(cmake/forerunConfig.cmake.in forerunConfig.cmake
  INSTALL_DESTINATION ${cmake_files})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/forerunConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/forerunConfig.cmake ${PROJECT_BINARY_DIR}/forerunConfigVersion.cmake
  DESTINATION ${cmake_files})

install(TARGETS forerun RUNTIME)
install(DIRECTORY include/forerun TYPE INCLUDE)
install(FILES docs/forerun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
# Completion is printed by the command itself, into the folders that the shells search.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  return() # it cannot run here
endif()
foreach(place bash:bash-completion/completions/forerun zsh:zsh/site-functions/_forerun
    fish:fish/vendor_completions.d/forerun.fish)
  string(REPLACE ":" ";" place ${place})
  list(GET place 0 shell)
  list(GET place 1 path)
  set(script ${PROJECT_BINARY_DIR}/share/${path})
  get_filename_component(folder ${script} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${script} DEPENDS forerun VERBATIM
    COMMAND forerun completion ${shell} > ${script})
  list(APPEND completion ${script})
endforeach()
add_custom_target(completion ALL DEPENDS ${completion})
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR})
