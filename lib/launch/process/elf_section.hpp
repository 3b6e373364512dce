// What a program states of itself in a section of its ELF file, read without running it.
#pragma once
#include <string>

namespace dslaunch::launch {

// The text of a section of a 64-bit ELF file, up to its first NUL; "" when the file cannot be read, is of another kind
// (a shell script) or has no such section. Any thread.
std::string elf_section_text(const std::string& path, const std::string& section);

}  // namespace dslaunch::launch
