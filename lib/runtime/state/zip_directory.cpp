#include "runtime/state/zip_directory.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime {
namespace {

constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kCentralBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50, kCentralMark = 0x02014b50,
                   kLocalMark = 0x04034b50;
constexpr uint16_t kStored = 0, kDeflated = 8, kZip64Field = 1;

class Directory {
 public:
  Directory(std::span<const uint8_t> archive, const std::string& subject) : archive_(archive), subject_(subject) {}

  std::vector<ZipMember> read() {
    find_directory();
    std::vector<ZipMember> members;
    uint64_t at = offset_;
    for (uint64_t i = 0; i < count_; ++i) members.push_back(read_member(at));
    return members;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(ExitCode::kBadInput, fmt::format("{} {}", subject_, what));
  }

  void require(uint64_t at, uint64_t size) const {
    if (at > archive_.size() || size > archive_.size() - at) refuse("is a truncated or damaged zip archive");
  }

  template <class T>
  T number(uint64_t at) const {
    require(at, sizeof(T));
    T value;
    std::memcpy(&value, archive_.data() + at, sizeof value);
    return value;
  }

  void find_directory() {
    if (archive_.size() < kEndBytes) refuse("is too short for a zip archive");
    const size_t lowest = archive_.size() - std::min<size_t>(archive_.size(), kEndBytes + 0xffff);
    size_t at = archive_.size() - kEndBytes + 1;
    do {
      if (at == lowest) refuse("is truncated or no zip archive: its directory is missing; copy or save it again");
    } while (number<uint32_t>(--at) != kEndMark);
    count_ = number<uint16_t>(at + 10);
    offset_ = number<uint32_t>(at + 16);
    if (at >= kLocatorBytes && number<uint32_t>(at - kLocatorBytes) == kLocatorMark) {
      const auto end64 = number<uint64_t>(at - kLocatorBytes + 8);
      require(end64, kEnd64Bytes);
      if (number<uint32_t>(end64) != kEnd64Mark) refuse("is a damaged zip archive: bad 64-bit directory");
      count_ = number<uint64_t>(end64 + 32);
      offset_ = number<uint64_t>(end64 + 48);
    }
    if (count_ > archive_.size() / kCentralBytes) refuse("is a damaged zip archive: too many members");
  }

  ZipMember read_member(uint64_t& at) const {
    require(at, kCentralBytes);
    if (number<uint32_t>(at) != kCentralMark) refuse("is a damaged zip archive: bad directory entry");
    const auto flags = number<uint16_t>(at + 8), method = number<uint16_t>(at + 10);
    const auto name_size = number<uint16_t>(at + 28), extra_size = number<uint16_t>(at + 30);
    const auto comment_size = number<uint16_t>(at + 32);
    uint64_t packed = number<uint32_t>(at + 20), size = number<uint32_t>(at + 24), local = number<uint32_t>(at + 42);
    require(at + kCentralBytes, name_size + extra_size + comment_size);
    ZipMember member;
    member.entry_at = at;
    member.name.assign(reinterpret_cast<const char*>(archive_.data()) + at + kCentralBytes, name_size);
    member.crc = number<uint32_t>(at + 16);
    read_zip64(at + kCentralBytes + name_size, extra_size, size, packed, local);
    at += kCentralBytes + name_size + extra_size + comment_size;

    if (flags & 1) refuse(fmt::format("member '{}' is encrypted", member.name));
    if (method != kStored && method != kDeflated) {
      refuse(fmt::format("member '{}' is packed by method {}; only stored and deflated ones can be read", member.name,
                         method));
    }
    member.deflated = method == kDeflated;
    member.size = size;
    if (!member.deflated && packed != size) refuse(fmt::format("member '{}' is damaged: two sizes", member.name));
    require(local, kLocalBytes);
    if (number<uint32_t>(local) != kLocalMark) refuse(fmt::format("member '{}' is damaged: bad header", member.name));
    const uint64_t begin = local + kLocalBytes + number<uint16_t>(local + 26) + number<uint16_t>(local + 28);
    require(begin, packed);
    member.bytes = archive_.subspan(begin, packed);
    return member;
  }

  // Fields that overflow 32 bits stand in an extra field, in this order.
  void read_zip64(uint64_t at, uint64_t extra_size, uint64_t& size, uint64_t& packed, uint64_t& local) const {
    const uint64_t end = at + extra_size;
    while (at + 4 <= end) {
      const auto id = number<uint16_t>(at), length = number<uint16_t>(at + 2);
      uint64_t field = at + 4;
      at = field + length;
      if (id != kZip64Field || at > end) continue;
      for (uint64_t* value : {&size, &packed, &local}) {
        if (*value == 0xffffffff && field + 8 <= at) {
          *value = number<uint64_t>(field);
          field += 8;
        }
      }
    }
  }

  const std::span<const uint8_t> archive_;
  const std::string& subject_;
  uint64_t count_ = 0, offset_ = 0;
};

}  // namespace

std::vector<ZipMember> read_zip_directory(std::span<const uint8_t> archive, const std::string& subject) {
  return Directory(archive, subject).read();
}

bool has_stored_crc(const ZipMember& member) {
  return ::crc32_z(::crc32_z(0, nullptr, 0), member.bytes.data(), member.bytes.size()) == member.crc;
}

std::vector<uint8_t> inflate_member(const ZipMember& member, const std::string& subject) {
  auto refuse = [&](const std::string& what) -> void {
    throw UserError(ExitCode::kBadInput, fmt::format("{} member '{}' {}", subject, member.name, what));
  };
  // Deflate cannot pack tighter than 1032 to 1: a larger claim is damage, not a reason to take all memory.
  if (member.size / 1032 > member.bytes.size() + 1) refuse("is damaged: impossible size");
  std::vector<uint8_t> out(member.size);
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) refuse("cannot be unpacked: no memory");
  size_t taken = 0, given = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    const size_t in = std::min<size_t>(member.bytes.size() - taken, 1 << 30);
    const size_t room = std::min<size_t>(out.size() - given, 1 << 30);
    stream.next_in = const_cast<uint8_t*>(member.bytes.data()) + taken;
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = out.data() + given;
    stream.avail_out = static_cast<uInt>(room);
    result = ::inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    given += room - stream.avail_out;
  }
  ::inflateEnd(&stream);
  if (result != Z_STREAM_END || given != out.size()) refuse("is damaged: it does not unpack to its size");
  uLong crc = ::crc32_z(0, out.data(), out.size());
  if (crc != member.crc) refuse("is damaged: its checksum does not match");
  return out;
}

}  // namespace dslaunch::runtime
