// Any bytes as a file of the kind that the first byte names: n, an .npy array; z, a zip archive with its members; s, a
// safetensors file without the length in front; m, an index of Megatron's over a few tokens; c, a checkpoint's
// manifest. An error of the user's comes out, or something that lies inside the file.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/data/megatron_file.hpp"
#include "runtime/data/npy_format.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/safetensors_file.hpp"
#include "runtime/state/tensor_extent.hpp"
#include "runtime/state/zip_members.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

using Bytes = std::span<const uint8_t>;

void require(bool good) {
  if (!good) std::abort();
}

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
    require(::mkdtemp(pattern.data()));
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string write(const std::string& name, std::string_view bytes) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

const Folder& dir() {
  static const Folder once;
  return once;
}

void read_npy(Bytes bytes) {
  const NpyHeader header = read_npy_header(bytes, "fuzz");
  const auto expected = num_bytes_of(header.shape, header.dtype);
  require(expected && header.data_begin + static_cast<size_t>(*expected) <= bytes.size());
}

void read_zip(Bytes bytes) {
  for (const auto& member : read_zip_members(bytes, "fuzz")) {
    require(member.bytes.data() >= bytes.data());
    require(member.bytes.data() + member.bytes.size() <= bytes.data() + bytes.size());
    if (member.deflated) require(inflate_member(member, "fuzz").size() == member.size);
    if (!member.deflated) has_stored_crc(member);
  }
}

// The header ends with the first line, or with the file.
void read_safetensors(std::string_view text) {
  const uint64_t length = std::min(text.find('\n'), text.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += text;
  const SafetensorsFile file(dir().write("f.safetensors", bytes));
  for (const auto& entry : file.entries()) {
    require(entry.begin <= entry.end && entry.end <= bytes.size());
    file.tensor(entry);
  }
}

void read_megatron(std::string_view index) {
  constexpr size_t kBytes = 128;
  dir().write("f.idx", index);
  for (const auto& tokens : read_megatron_tokens(dir().write("f.bin", std::string(kBytes, '\0')))) {
    const auto extent = num_bytes_of(tokens.shape, tokens.dtype);
    require(extent && *extent <= static_cast<int64_t>(kBytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Bytes bytes(data + 1, size - 1);
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 'n') read_npy(bytes);
    if (data[0] == 'z') read_zip(bytes);
    if (data[0] == 's') read_safetensors(text);
    if (data[0] == 'm') read_megatron(text);
    if (data[0] == 'c') manifest_from_json(text, "fuzz");
  } catch (const UserError&) {
  }
  return 0;
}
