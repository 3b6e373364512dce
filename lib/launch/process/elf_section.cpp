#include "launch/process/elf_section.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {
namespace {

// Of headers and names; programs have some dozens of sections.
constexpr size_t kMaxBytes = size_t{1} << 20;

bool read_at(int fd, uint64_t offset, std::span<char> to) {
  return ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(to.size());
}

std::optional<std::vector<char>> read_section(int fd, const Elf64_Shdr& header) {
  if (header.sh_size > kMaxBytes) return std::nullopt;
  std::vector<char> bytes(header.sh_size);
  if (!read_at(fd, header.sh_offset, bytes)) return std::nullopt;
  bytes.push_back('\0');
  return bytes;
}

std::vector<Elf64_Shdr> read_section_headers(int fd, const Elf64_Ehdr& file) {
  if (file.e_shentsize != sizeof(Elf64_Shdr) || file.e_shstrndx >= file.e_shnum) return {};
  std::vector<Elf64_Shdr> headers(file.e_shnum);
  const std::span<char> bytes(reinterpret_cast<char*>(headers.data()), headers.size() * sizeof(Elf64_Shdr));
  return read_at(fd, file.e_shoff, bytes) ? headers : std::vector<Elf64_Shdr>();
}

}  // namespace

std::string elf_section_text(const std::string& path, const std::string& section) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Elf64_Ehdr file;
  if (!fd.valid() || !read_at(fd.get(), 0, {reinterpret_cast<char*>(&file), sizeof file})) return "";
  if (std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_ident[EI_CLASS] != ELFCLASS64) return "";
  const std::vector<Elf64_Shdr> headers = read_section_headers(fd.get(), file);
  if (headers.empty()) return "";
  const auto names = read_section(fd.get(), headers[file.e_shstrndx]);
  if (!names) return "";
  for (const Elf64_Shdr& header : headers) {
    if (header.sh_name >= names->size() || section != names->data() + header.sh_name) continue;
    const auto text = read_section(fd.get(), header);
    return text ? text->data() : "";
  }
  return "";
}

}  // namespace dslaunch::launch
