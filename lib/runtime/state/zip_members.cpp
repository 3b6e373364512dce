#include "runtime/state/zip_members.hpp"

#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <functional>

#include "base/byte_fields.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/scope_exit.hpp"
#include "base/zip_directory.hpp"
#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {
namespace {

constexpr uint16_t kEncrypted = 1, kStored = 0, kDeflated = 8;
constexpr std::string_view kHeaderMark{"PK\3\4", 4};

// A member's bytes follow its local header, whose name and extra field may differ in size from the central directory's.
std::string_view packed_bytes(std::string_view archive, const ZipEntry& entry) {
  constexpr const char* kTruncated = "is a truncated or damaged zip archive";
  ByteReader header(archive.substr(std::min<uint64_t>(entry.header_at, archive.size())), kTruncated);
  if (header.bytes(kHeaderMark.size()) != kHeaderMark) {
    throw WireError(fmt::format("member '{}' is damaged: bad header", entry.name));
  }
  header.bytes(2 + 2 + 2 + 2 + 2 + 4 + 4 + 4);  // fields that the central directory has, too
  const uint16_t name_bytes = header.u16(), extra_bytes = header.u16();
  header.bytes(name_bytes);
  header.bytes(extra_bytes);
  return header.bytes(entry.packed_bytes);
}

ZipMember member_of(std::string_view archive, ZipEntry entry, uint64_t directory_at) {
  if (entry.flags & kEncrypted) throw WireError(fmt::format("member '{}' is encrypted", entry.name));
  if (entry.method != kStored && entry.method != kDeflated) {
    throw WireError(fmt::format("member '{}' is packed by method {}; only stored and deflated ones can be read",
                                entry.name, entry.method));
  }
  if (entry.method == kStored && entry.packed_bytes != entry.bytes) {
    throw WireError(fmt::format("member '{}' is damaged: two sizes", entry.name));
  }
  const auto bytes = packed_bytes(archive, entry);
  return {.name = std::move(entry.name),
          .deflated = entry.method == kDeflated,
          .crc = entry.crc,
          .size = entry.bytes,
          .bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
          .entry_at = directory_at + entry.entry_at};
}

// Unpacks a deflated member piece by piece: into what `room` returns, handed to `take`. False: damaged, or there is no
// room left.
bool inflate(const ZipMember& member, const std::function<std::span<uint8_t>()>& room,
             const std::function<void(std::span<const uint8_t>)>& take) {
  constexpr size_t kMaxPiece = size_t{1} << 30;  // zlib counts in 32 bits
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  const ScopeExit end([&] { ::inflateEnd(&stream); });
  int result = Z_OK;
  for (size_t taken = 0; result == Z_OK;) {
    const size_t in = std::min(member.bytes.size() - taken, kMaxPiece);
    const auto out = room();
    stream.next_in = const_cast<uint8_t*>(member.bytes.data()) + taken;
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(std::min(out.size(), kMaxPiece));
    const size_t offered = stream.avail_out;
    result = ::inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    take(out.first(offered - stream.avail_out));
  }
  return result == Z_STREAM_END;
}

}  // namespace

std::vector<ZipMember> read_zip_members(std::span<const uint8_t> archive, const std::string& subject) {
  const std::string_view bytes(reinterpret_cast<const char*>(archive.data()), archive.size());
  try {
    const auto extent = find_zip_directory(bytes, bytes.size());
    std::vector<ZipMember> members;
    for (auto& entry : read_zip_entries(bytes.substr(extent.offset, extent.size), extent.num_entries)) {
      members.push_back(member_of(bytes, std::move(entry), extent.offset));
    }
    return members;
  } catch (const WireError& error) {
    throw UserError(ExitCode::kBadInput, fmt::format("{} {}", subject, error.what()));
  }
}

bool has_checksums(const std::vector<ZipMember>& members) {
  return members.empty() || std::any_of(members.begin(), members.end(), [](const auto& each) { return each.crc != 0; });
}

bool matches_crc(const ZipMember& member) {
  uint32_t crc = 0;
  if (!member.deflated) {
    read_through(member.bytes,
                 [&](std::span<const uint8_t> part) { crc = ::libdeflate_crc32(crc, part.data(), part.size()); });
    return crc == member.crc;
  }
  uint64_t size = 0;
  std::vector<uint8_t> window(size_t{1} << 18);
  const bool is_whole = inflate(
      member, [&] { return std::span(window); },
      [&](std::span<const uint8_t> part) {
        crc = ::libdeflate_crc32(crc, part.data(), part.size());
        size += part.size();
      });
  return is_whole && size == member.size && crc == member.crc;
}

std::vector<uint8_t> inflate_beginning(const ZipMember& member, size_t num_bytes) {
  std::vector<uint8_t> out(num_bytes);
  size_t given = 0;
  inflate(
      member, [&] { return std::span(out).subspan(given); },
      [&](std::span<const uint8_t> part) { given += part.size(); });
  out.resize(given);
  return out;
}

std::vector<uint8_t> inflate_member(const ZipMember& member, const std::string& subject) {
  const auto refuse = [&](const std::string& what) {
    throw UserError(ExitCode::kBadInput, fmt::format("{} member '{}' {}", subject, member.name, what));
  };
  // Deflate cannot compress better than 1032 to 1: a larger claim is damage, and must not make us allocate that much
  // memory.
  if (member.size / 1032 > member.bytes.size() + 1) refuse("is damaged: impossible size");
  std::vector<uint8_t> out(member.size);
  if (out.empty()) return out;
  uint64_t given = 0;
  const bool is_whole = inflate(
      member, [&] { return std::span(out).subspan(given); },
      [&](std::span<const uint8_t> part) { given += part.size(); });
  if (!is_whole || given != out.size()) refuse("is damaged: it does not unpack to its size");
  if (::libdeflate_crc32(0, out.data(), out.size()) != member.crc) refuse("is damaged: its checksum does not match");
  return out;
}

}  // namespace dslaunch::runtime
