#include "launch/terminal/line_deduplicator.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

const LineDeduplicator::Time kStart{};

LineDeduplicator folder_for(int num_ranks) {
  std::vector<std::string> prefixes;
  for (int rank = 0; rank < num_ranks; ++rank) prefixes.push_back("h:" + std::to_string(rank) + "| ");
  return LineDeduplicator(std::move(prefixes), num_ranks);
}

std::vector<std::string> texts(const std::vector<LineDeduplicator::Shown>& shown) {
  std::vector<std::string> all;
  for (const auto& line : shown) all.push_back(line.text);
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("ranks are named in ranges", "[launch][line_deduplicator]") {
  CHECK(rank_ranges({0}) == "0");
  CHECK(rank_ranges({0, 1, 2, 3}) == "0-3");
  CHECK(rank_ranges({0, 1, 2, 4, 6, 7}) == "0-2, 4, 6-7");
}

TEST_CASE("a line that all ranks have written is shown once, immediately", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(3);
  for (int rank : {2, 0, 1}) dir.add(rank, Stream::kOut, "same\n", kStart);
  CHECK(dir.take(kStart) == std::vector<LineDeduplicator::Shown>{{Stream::kOut, "[ranks 0-2] same\n"}});
  CHECK(dir.next(kStart).is_never());
}

TEST_CASE("a line waits only briefly for other ranks", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(3);
  dir.add(1, Stream::kErr, "mine\n", kStart);
  CHECK(dir.take(kStart + LineDeduplicator::kWindow - 1ms).empty());
  CHECK_FALSE(dir.next(kStart).is_never());
  CHECK(dir.take(kStart + LineDeduplicator::kWindow) ==
        std::vector<LineDeduplicator::Shown>{{Stream::kErr, "h:1| mine\n"}});
  dir.add(0, Stream::kErr, "mine\n", kStart + LineDeduplicator::kWindow);
  CHECK(texts(dir.take_all()) == Texts{"h:0| mine\n"});
}

TEST_CASE("an error waits longer", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(2);
  dir.add(0, Stream::kErr, "error: no such model\n", kStart);
  CHECK(dir.take(kStart + LineDeduplicator::kErrorWindow - 1ms).empty());
  dir.add(1, Stream::kErr, "error: no such model\n", kStart + LineDeduplicator::kErrorWindow - 1ms);
  CHECK(texts(dir.take(kStart + LineDeduplicator::kErrorWindow - 1ms)) == Texts{"[ranks 0-1] error: no such model\n"});
}

TEST_CASE("errors that differ in numbers alone are shown once", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(3);
  dir.add(1, Stream::kErr, "error: write 4096 bytes at offset 65536: Input/output error\n", kStart);
  dir.add(0, Stream::kErr, "error: write 512 bytes at offset 7: Input/output error\n", kStart);
  dir.add(2, Stream::kErr, "error: read 512 bytes at offset 7: Input/output error\n", kStart);
  CHECK(texts(dir.take_all()) ==
        Texts{"[ranks 0-1] error: write 4096 bytes at offset 65536: Input/output error (numbers of rank 1)\n",
              "h:2| error: read 512 bytes at offset 7: Input/output error\n"});
  // Other lines are not: their numbers are what they are for. Nor is a number that only one of them has.
  dir.add(0, Stream::kErr, "rank 0 is ready\n", kStart);
  dir.add(1, Stream::kErr, "rank 1 is ready\n", kStart);
  dir.add(0, Stream::kErr, "error: disk 10\n", kStart);
  dir.add(1, Stream::kErr, "error: disk \n", kStart);
  dir.add(2, Stream::kErr, "error: disk 1 0\n", kStart);
  CHECK(dir.take_all().size() == 5);
}

TEST_CASE("an error that other ranks repeat is shown once, as the rank that failed wrote it",
          "[launch][line_deduplicator]") {
  const std::string error = "error: read 512 bytes: Input/output error\n";
  const std::string repeated =
      "error: rank 1 on h: read 512 bytes: Input/output error during all_gather of 64 float32 in group 'world'\n";
  std::vector<int> order{0, 1, 2};
  do {
    LineDeduplicator dir = folder_for(3);
    for (const int rank : order) dir.add(rank, Stream::kErr, rank == 1 ? error : repeated, kStart);
    CHECK(texts(dir.take_all()) == Texts{"[ranks 0-2] " + error});
  } while (std::next_permutation(order.begin(), order.end()));
  LineDeduplicator dir = folder_for(2);
  dir.add(0, Stream::kErr, repeated, kStart);
  dir.add(1, Stream::kErr, "error: write 512 bytes: Input/output error\n", kStart);
  CHECK(dir.take_all().size() == 2);
}

TEST_CASE("output and errors are different lines", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(2);
  dir.add(0, Stream::kOut, "x\n", kStart);
  dir.add(1, Stream::kErr, "x\n", kStart);
  CHECK(dir.take_all().size() == 2);
}

TEST_CASE("lines do not wait for ranks that have ended", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(3);
  dir.rank_ended(1);
  dir.add(0, Stream::kOut, "x\n", kStart);
  dir.add(2, Stream::kOut, "x\n", kStart);
  CHECK(texts(dir.take(kStart)) == Texts{"[ranks 0, 2] x\n"});
}

TEST_CASE("a rank that has ended with a line does not stand for one that still writes", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(3);
  dir.add(0, Stream::kErr, "x\n", kStart);
  dir.rank_ended(0);
  dir.add(1, Stream::kErr, "x\n", kStart);
  CHECK(dir.take(kStart).empty());
  dir.add(2, Stream::kErr, "x\n", kStart);
  CHECK(texts(dir.take(kStart)) == Texts{"[ranks 0-2] x\n"});
}

TEST_CASE("a rank's later line does not join an earlier one of others", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(2);
  dir.add(0, Stream::kOut, "b\n", kStart);
  dir.add(1, Stream::kOut, "a\n", kStart);
  dir.add(1, Stream::kOut, "b\n", kStart);
  // "b" of rank 1 behind its "a", although a "b" waits in front of that.
  CHECK(texts(dir.take_all()) == Texts{"h:0| b\n", "h:1| a\n", "h:1| b\n"});
}

TEST_CASE("many different lines are not buffered", "[launch][line_deduplicator]") {
  LineDeduplicator dir = folder_for(2);
  for (int i = 0; i < 2000; ++i) dir.add(0, Stream::kOut, std::to_string(i) + "\n", kStart);
  CHECK(dir.take(kStart).size() >= 1700);
}

TEST_CASE("every rank's lines arrive once and in order", "[launch][line_deduplicator]") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int num_ranks = 2 + static_cast<int>(random() % 4);
    LineDeduplicator dir = folder_for(num_ranks);
    std::map<int, std::string> written, shown;
    auto note = [&](const std::vector<LineDeduplicator::Shown>& lines) {
      for (const auto& line : lines) {
        std::string text = line.text.substr(line.text.find_first_of("|]") + 2);
        if (line.text[0] != '[') {
          shown[line.text[2] - '0'] += text;
          continue;
        }
        // Single digits here: "[ranks 0-1, 3] x".
        std::string ranks = line.text.substr(7, line.text.find(']') - 7);
        for (size_t at = 0; at < ranks.size(); at += 3) {
          int first = ranks[at] - '0', last = first;
          if (at + 1 < ranks.size() && ranks[at + 1] == '-') {
            last = ranks[at + 2] - '0';
            at += 2;
          }
          for (int rank = first; rank <= last; ++rank) shown[rank] += text;
        }
      }
    };
    auto now = kStart;
    for (int i = 0; i < 60; ++i) {
      int rank = static_cast<int>(random() % static_cast<unsigned>(num_ranks));
      std::string line(1, static_cast<char>('a' + random() % 3));
      written[rank] += line + "\n";
      dir.add(rank, Stream::kOut, line + "\n", now);
      now += std::chrono::milliseconds(random() % 20);
      note(dir.take(now));
    }
    note(dir.take_all());
    REQUIRE(shown == written);
  }
}
