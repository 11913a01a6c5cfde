# Toolchain file: 64-bit Arm by Debian's cross compiler, with Debian's libraries of that architecture
# (libdnnl-dev:arm64 and so on); programs run by qemu-user. scripts/try-aarch64.sh makes a system
# that has all of it.
#
#     cmake --preset aarch64 && cmake --build --preset aarch64 && ctest --preset aarch64
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

# One model of processor, so that oneDNN chooses the same kernels on every host. Without qemu the
# programs are built and not run.
set(FR_EMULATED_CPU neoverse-n1 CACHE STRING "Processor that qemu-user emulates")
find_program(QEMU_AARCH64 qemu-aarch64)
if(QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU_AARCH64} -cpu ${FR_EMULATED_CPU})
endif()
