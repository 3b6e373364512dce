// The central directory of a zip archive (APPNOTE 4.3.12 to 4.3.16), parsed from bytes that the caller has read; the
// archive's end locates it. No number in it is trusted: inconsistent values throw WireError, whose text continues the
// archive's name ("is a truncated or damaged zip archive"). Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// This many bytes of an archive's end, or the whole archive if shorter, suffice to locate the directory.
inline constexpr size_t kZipEndBytes = 66'000;

// Whether the archive's last bytes contain an end record.
bool has_zip_end(std::string_view tail);

struct ZipDirectoryExtent {
  uint64_t offset = 0, size = 0;  // inside the archive
  uint64_t num_entries = 0;       // guaranteed to fit in `size`
};
// `tail`: the last kZipEndBytes or more, or the whole archive if shorter.
ZipDirectoryExtent find_zip_directory(std::string_view tail, uint64_t archive_bytes);

// One member, as the central directory describes it.
struct ZipEntry {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed_bytes = 0, bytes = 0;
  uint64_t header_at = 0;  // where the member's local header should be in the archive; not checked
  size_t entry_at = 0;     // where this entry starts in the directory
};
std::vector<ZipEntry> read_zip_entries(std::string_view directory, uint64_t num_entries);

}  // namespace dslaunch
