#include "base/zip_directory.hpp"

#include <algorithm>

#include "base/byte_fields.hpp"

namespace dslaunch {
namespace {

constexpr size_t kEndBytes = 22, kLocatorBytes = 20, kEntryBytes = 46;
constexpr size_t kMaxEntryBytes = kEntryBytes + size_t{3} * 65'535;  // with a name, extra fields and a comment
constexpr std::string_view kEndMark{"PK\5\6", 4}, kEnd64Mark{"PK\6\6", 4}, kLocatorMark{"PK\6\7", 4},
    kEntryMark{"PK\1\2", 4};
constexpr uint32_t kTooLarge = 0xffffffff;  // the true number is in the 64-bit field
constexpr uint16_t kZip64Field = 1;
constexpr const char* kTruncated = "is a truncated or damaged zip archive";

// Position of the last end record that can be complete.
size_t find_end_record(std::string_view tail) {
  return tail.size() < kEndBytes ? std::string_view::npos : tail.rfind(kEndMark, tail.size() - kEndBytes);
}

// The 64-bit end record, used by archives of more than 4 GiB or 65535 members, and by all of LibTorch's. It precedes
// the locator, which holds its offset.
ZipDirectoryExtent read_end64(std::string_view tail, uint64_t tail_at, std::string_view locator) {
  ByteReader fields(locator, kTruncated);
  fields.bytes(kLocatorMark.size() + 4);
  const uint64_t at = fields.u64();
  if (at < tail_at || at - tail_at > tail.size())
    throw WireError("is a damaged zip archive: no 64-bit central directory");
  ByteReader record(tail.substr(at - tail_at), kTruncated);
  if (record.bytes(kEnd64Mark.size()) != kEnd64Mark)
    throw WireError("is a damaged zip archive: bad 64-bit central directory");
  record.bytes(8 + 2 + 2 + 4 + 4 + 8);  // its size, versions, disk numbers and the entries on this disk
  ZipDirectoryExtent extent;
  extent.num_entries = record.u64();
  extent.size = record.u64();
  extent.offset = record.u64();
  return extent;
}

// Numbers that need more than 32 bits are in an extra field, in this order.
void read_zip64_field(std::string_view extra, ZipEntry& entry) {
  while (extra.size() >= 4) {
    ByteReader head(extra);
    const uint16_t id = head.u16(), length = head.u16();
    extra.remove_prefix(4);
    if (length > extra.size()) return;
    auto field = extra.substr(0, length);
    extra.remove_prefix(length);
    if (id != kZip64Field) continue;
    for (uint64_t* value : {&entry.bytes, &entry.packed_bytes, &entry.header_at}) {
      if (*value != kTooLarge || field.size() < sizeof *value) continue;
      *value = ByteReader(field).u64();
      field.remove_prefix(sizeof *value);
    }
  }
}

ZipEntry read_entry(ByteReader& from) {
  if (from.bytes(kEntryMark.size()) != kEntryMark) throw WireError("is a damaged zip archive: bad directory entry");
  ZipEntry entry;
  from.bytes(2 + 2);  // versions
  entry.flags = from.u16();
  entry.method = from.u16();
  from.bytes(2 + 2);  // time
  entry.crc = from.u32();
  entry.packed_bytes = from.u32();
  entry.bytes = from.u32();
  const uint16_t name_bytes = from.u16(), extra_bytes = from.u16(), comment_bytes = from.u16();
  from.bytes(2 + 2 + 4);  // disk, attributes
  entry.header_at = from.u32();
  entry.name = from.bytes(name_bytes);
  read_zip64_field(from.bytes(extra_bytes), entry);
  from.bytes(comment_bytes);
  return entry;
}

}  // namespace

bool has_zip_end(std::string_view tail) {
  return find_end_record(tail) != std::string_view::npos;
}

ZipDirectoryExtent find_zip_directory(std::string_view tail, uint64_t archive_bytes) {
  tail.remove_prefix(tail.size() - std::min(tail.size(), kZipEndBytes));
  const size_t end_at = find_end_record(tail);
  if (end_at == std::string_view::npos) {
    throw WireError("is truncated or not a zip archive: its central directory is missing; copy or save it again");
  }
  ByteReader end(tail.substr(end_at), kTruncated);
  end.bytes(kEndMark.size() + 2 + 2 + 2);  // disk numbers and the entries on this disk
  ZipDirectoryExtent extent;
  extent.num_entries = end.u16();
  extent.size = end.u32();
  extent.offset = end.u32();
  const auto before = tail.substr(0, end_at);
  const auto locator = before.substr(before.size() - std::min(before.size(), kLocatorBytes));
  if (locator.size() == kLocatorBytes && locator.starts_with(kLocatorMark)) {
    extent = read_end64(tail, archive_bytes - tail.size(), locator);
  }
  if (extent.offset > archive_bytes || extent.size > archive_bytes - extent.offset) throw WireError(kTruncated);
  if (extent.num_entries > extent.size / kEntryBytes) throw WireError("is a damaged zip archive: too many members");
  // A reader loads the directory into memory.
  if (extent.size / kMaxEntryBytes > extent.num_entries) throw WireError("is a damaged zip archive: too few members");
  return extent;
}

std::vector<ZipEntry> read_zip_entries(std::string_view directory, uint64_t num_entries) {
  ByteReader from(directory, kTruncated);
  std::vector<ZipEntry> entries;
  for (uint64_t i = 0; i < num_entries; ++i) {
    const size_t at = directory.size() - from.num_left();
    entries.push_back(read_entry(from));
    entries.back().entry_at = at;
  }
  return entries;
}

}  // namespace dslaunch
