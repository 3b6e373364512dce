#include "launch/process/elf_section.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
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

// The sections of an open file; empty for a file of another kind.
struct ElfSections {
  UniqueFd fd;
  std::vector<Elf64_Shdr> headers;
  std::vector<char> names;

  std::optional<std::vector<char>> read(const std::string& section) const {
    for (const Elf64_Shdr& header : headers) {
      if (header.sh_name < names.size() && section == names.data() + header.sh_name)
        return read_section(fd.get(), header);
    }
    return std::nullopt;
  }
};

ElfSections open_elf_file(const std::string& path) {
  ElfSections out{UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), {}, {}};
  Elf64_Ehdr file;
  if (!out.fd.valid() || !read_at(out.fd.get(), 0, {reinterpret_cast<char*>(&file), sizeof file})) return out;
  if (std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_ident[EI_CLASS] != ELFCLASS64) return out;
  auto headers = read_section_headers(out.fd.get(), file);
  if (headers.empty()) return out;
  auto names = read_section(out.fd.get(), headers[file.e_shstrndx]);
  if (!names) return out;
  out.headers = std::move(headers);
  out.names = std::move(*names);
  return out;
}

}  // namespace

std::string elf_section_text(const std::string& path, const std::string& section) {
  const auto text = open_elf_file(path).read(section);
  return text ? text->data() : "";
}

std::string elf_run_path(const std::string& path) {
  const ElfSections file = open_elf_file(path);
  const auto dynamic = file.read(".dynamic"), strings = file.read(".dynstr");
  if (!dynamic || !strings) return "";
  for (size_t at = 0; at + sizeof(Elf64_Dyn) < dynamic->size(); at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    std::memcpy(&entry, dynamic->data() + at, sizeof entry);
    const bool is_run_path = entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH;
    if (is_run_path && entry.d_un.d_val < strings->size()) return strings->data() + entry.d_un.d_val;
  }
  return "";
}

}  // namespace dslaunch::launch
