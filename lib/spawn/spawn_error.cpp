#include "spawn/spawn_error.hpp"

#include <elf.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "base/format.hpp"

namespace dslaunch::spawn {
namespace {

std::string read_at(std::ifstream& file, uint64_t offset, size_t count) {
  std::string bytes(count, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

template <class Record>
std::optional<Record> record_at(std::ifstream& file, uint64_t offset) {
  std::string bytes = read_at(file, offset, sizeof(Record));
  if (bytes.size() != sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

std::optional<Elf64_Ehdr> elf_header(std::ifstream& file) {
  auto header = record_at<Elf64_Ehdr>(file, 0);
  bool elf = header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0;
  return elf ? header : std::nullopt;
}

// The dynamic loader that a 64-bit binary names.
std::string loader_of(std::ifstream& file) {
  auto header = elf_header(file);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64) return {};
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    auto part = record_at<Elf64_Phdr>(file, header->e_phoff + uint64_t{i} * header->e_phentsize);
    if (part && part->p_type == PT_INTERP && part->p_filesz < 4096) {
      return read_at(file, part->p_offset, part->p_filesz).c_str();  // up to its NUL
    }
  }
  return {};
}

// "#! /usr/bin/python3 -u" -> "/usr/bin/python3"; a '\r' at the end stays, since execve looks for it too.
std::string script_interpreter(std::ifstream& file) {
  std::string begin = read_at(file, 0, 256);
  if (!begin.starts_with("#!")) return {};
  std::string line = begin.substr(2, begin.find('\n') - 2);
  size_t first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return line.substr(first, line.find_first_of(" \t", first) - first);
}

const char* machine_name(unsigned machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86_64";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64";
    case EM_386:
      return "32-bit x86";
    default:
      return "another CPU";
  }
}

}  // namespace

Result<> check_interpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  if (std::string script = script_interpreter(file); !script.empty()) {
    if (::access(script.c_str(), F_OK) == 0) return {};
    if (script.ends_with('\r')) {
      return Failure{
          fmt::format("its #! line ends with a Windows line ending, so the interpreter is '{}' with a carriage return; "
                      "sed -i 's/\\r$//' {} repairs it",
                      script.substr(0, script.size() - 1), path)};
    }
    return Failure{fmt::format("its #! line names the interpreter {}, which does not exist on this host", script)};
  }
  std::string loader = loader_of(file);
  if (loader.empty() || ::access(loader.c_str(), F_OK) == 0) return {};
  return Failure{
      fmt::format("it needs the dynamic loader {}, which does not exist on this host: it was built for another "
                  "system",
                  loader)};
}

std::string wrong_format(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  auto header = elf_header(file);
  utsname system{};
  if (header && ::uname(&system) == 0) {
    if (machine_name(header->e_machine) == std::string_view(system.machine)) return "it is damaged or truncated";
    return fmt::format("it was built for {}, this host is {}", machine_name(header->e_machine), system.machine);
  }
  return read_at(file, 0, 1).empty() ? "it is empty" : "a script needs a #! line";
}

}  // namespace dslaunch::spawn
