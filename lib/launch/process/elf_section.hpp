// What a program states of itself in its ELF file, read without running it.
#pragma once
#include <string>

namespace dslaunch::launch {

// The text of a section of a 64-bit ELF file, up to its first NUL; "" when the file cannot be read, is of another kind
// (a shell script) or has no such section. Any thread.
std::string elf_section_text(const std::string& path, const std::string& section);

// The directories in which the loader searches the libraries of a 64-bit ELF file (DT_RUNPATH or DT_RPATH), separated
// by
// ':', as the file has them: "$ORIGIN" is the file's own directory. "" as above. Any thread.
std::string elf_run_path(const std::string& path);

}  // namespace dslaunch::launch
