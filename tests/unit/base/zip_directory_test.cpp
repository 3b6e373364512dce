#include "base/zip_directory.hpp"

#include <catch2/catch.hpp>

#include "base/byte_fields.hpp"

using namespace dslaunch;
using Catch::Contains;

namespace {

constexpr uint32_t kLarge = 0xffffffff;

std::string entry(const std::string& name, uint32_t packed, uint32_t size, uint32_t header_at,
                  const std::string& extra = "") {
  ByteWriter out;
  out.bytes(std::string_view("PK\1\2", 4)).u32(0).u16(0).u16(8).u32(0).u32(0xC3C3).u32(packed).u32(size);
  out.u16(static_cast<uint16_t>(name.size())).u16(static_cast<uint16_t>(extra.size())).u16(3).u64(0).u32(header_at);
  return out.bytes(name).bytes(extra).bytes(std::string_view("hi!")).take();
}

std::string end_record(uint16_t count, uint32_t size, uint32_t offset, const std::string& comment = "") {
  ByteWriter out;
  out.bytes(std::string_view("PK\5\6", 4)).u32(0).u16(count).u16(count).u32(size).u32(offset);
  return out.u16(static_cast<uint16_t>(comment.size())).bytes(comment).take();
}

// The record of 64 bits and what says where it is.
std::string end64(uint64_t count, uint64_t size, uint64_t offset, uint64_t at) {
  ByteWriter out;
  out.bytes(std::string_view("PK\6\6", 4)).u64(44).u32(0).u64(0).u64(count).u64(count).u64(size).u64(offset);
  return out.bytes(std::string_view("PK\6\7", 4)).u32(0).u64(at).u32(1).take();
}

std::vector<ZipEntry> entries_of(const std::string& archive) {
  const auto place = find_zip_directory(archive, archive.size());
  return read_zip_entries(std::string_view(archive).substr(place.offset, place.size), place.num_entries);
}

std::string refusal_of(const std::string& archive) {
  try {
    entries_of(archive);
  } catch (const WireError& error) {
    return error.what();
  }
  return "none";
}

const std::string kTwo = entry("a", 3, 4, 0) + entry("folder/b", 5, 6, 40);
const std::string kMembers(100, 'm');  // before the directory; nobody looks at them here

std::string archive_of_two(const std::string& comment = "") {
  return kMembers + kTwo + end_record(2, static_cast<uint32_t>(kTwo.size()), 100, comment);
}

}  // namespace

TEST_CASE("an archive's directory is found from its end and read", "[base][zip_directory]") {
  // The last PK\5\6 is part of the comment, and too near to the end for a record.
  for (const std::string comment : {"", "a comment", "PK\5\6"}) {
    const auto entries = entries_of(archive_of_two(comment));
    REQUIRE(entries.size() == 2);
    CHECK((entries[0].name == "a" && entries[1].name == "folder/b"));
    CHECK((entries[1].packed_bytes == 5 && entries[1].bytes == 6 && entries[1].header_at == 40));
    CHECK((entries[1].method == 8 && entries[1].flags == 0 && entries[1].crc == 0xC3C3));
    CHECK((entries[0].entry_at == 0 && entries[1].entry_at == 46 + 1 + 3));
  }
  CHECK(entries_of(end_record(0, 0, 0)).empty());
}

TEST_CASE("numbers of an archive beyond 4 GiB are read from their 64-bit fields", "[base][zip_directory]") {
  const uint64_t far = 5ull << 30, directory_at = 10ull << 30;
  const auto other = ByteWriter().u16(7).u16(2).u16(0).take();
  const auto zip64 = ByteWriter().u16(1).u16(16).u64(far).u64(far + 1).take();
  const auto directory = entry("large", 9, kLarge, kLarge, other + zip64);
  const auto tail = directory + end64(1, directory.size(), directory_at, directory_at + directory.size()) +
                    end_record(0xffff, kLarge, kLarge);
  const auto place = find_zip_directory(tail, directory_at + tail.size());
  CHECK((place.offset == directory_at && place.size == directory.size() && place.num_entries == 1));
  const auto entries = read_zip_entries(directory, 1);
  CHECK((entries[0].bytes == far && entries[0].packed_bytes == 9 && entries[0].header_at == far + 1));
}

TEST_CASE("what does not fit in an archive's directory is refused", "[base][zip_directory]") {
  const auto size = static_cast<uint32_t>(kTwo.size());
  CHECK_THAT(refusal_of(""), Contains("not a zip archive"));
  CHECK_THAT(refusal_of(kMembers), Contains("its central directory is missing"));
  CHECK_THAT(refusal_of("PK\5\6"), Contains("its central directory is missing"));
  CHECK_THAT(refusal_of(kMembers + kTwo + end_record(2, size, 200)), Contains("truncated or damaged"));
  CHECK_THAT(refusal_of(kMembers + kTwo + end_record(2, kLarge, 100)), Contains("truncated or damaged"));
  CHECK_THAT(refusal_of(kMembers + kTwo + end_record(60'000, size, 100)), Contains("too many members"));
  CHECK_THAT(refusal_of(kMembers + kTwo + end_record(2, size - 1, 100)), Contains("truncated or damaged"));
  CHECK_THAT(refusal_of(kMembers + kTwo + end_record(2, size, 99)), Contains("bad directory entry"));
  CHECK_THROWS_WITH(find_zip_directory(end_record(4, 1'000'000, 0), 2'000'000), Contains("too few members"));
  const uint64_t end64_at = kMembers.size() + kTwo.size();
  const auto with_end64 = [&](uint64_t count, uint64_t at) {
    return kMembers + kTwo + end64(count, size, 100, at) + end_record(2, size, 100);
  };
  CHECK(refusal_of(with_end64(2, end64_at)) == "none");
  CHECK_THAT(refusal_of(with_end64(~0ull, end64_at)), Contains("too many members"));
  CHECK_THAT(refusal_of(with_end64(2, end64_at + 1)), Contains("bad 64-bit central directory"));
  CHECK_THAT(refusal_of(with_end64(2, ~0ull)), Contains("no 64-bit central directory"));
}

TEST_CASE("no damage of one byte leads out of an archive's directory", "[base][zip_directory]") {
  const uint64_t end64_at = kMembers.size() + kTwo.size();
  const auto whole = kMembers + kTwo + end64(2, kTwo.size(), 100, end64_at) + end_record(2, kLarge, kLarge);
  REQUIRE(refusal_of(whole) == "none");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\1', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = value;
      CHECK_NOTHROW(refusal_of(damaged));
    }
    CHECK_NOTHROW(refusal_of(whole.substr(at)));
    CHECK(refusal_of(whole.substr(0, at)) != "none");
  }
}
