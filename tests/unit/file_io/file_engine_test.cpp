// Round trips through both back ends.
#include "file_io/file_engine.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "engine_harness.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::file_io;

namespace {

std::vector<Backend> backends() {
  std::vector<Backend> all{Backend::kThreads};
  if (test::has_uring()) all.push_back(Backend::kUring);
  return all;
}

EngineOptions options_for(Backend backend) {
  EngineOptions options;
  options.backend = backend;
  options.block_size = 16384;
  options.queue_depth = 4;
  options.num_threads = 2;
  options.note = [](const std::string& line) { UNSCOPED_INFO(line); };
  return options;
}

StripedFile file_in(const std::vector<std::string>& directories, int64_t bytes) {
  return StripedFile({.directories = directories, .bytes = bytes, .stripe_bytes = 32768, .note = [](const auto&) {}});
}

}  // namespace

TEST_CASE("what an engine wrote comes back, at any size and over any number of directories", "[file_io][engine]") {
  const test::TempDir a, b, c;
  for (const Backend backend : backends()) {
    FileEngine engine(options_for(backend));
    CHECK(engine.uses_uring() == (backend == Backend::kUring));
    for (const int64_t bytes : {1, 511, 4096, 4097, 16384, 40'000, 131'072, 1'000'001}) {
      for (const auto& directories : std::vector<std::vector<std::string>>{
               {a.path()}, {a.path(), b.path()}, {a.path(), b.path(), c.path()}, {a.path(), a.path()}}) {
        CAPTURE(bytes, directories.size());
        StripedFile file = file_in(directories, bytes);
        CHECK(test::survives_round_trip(engine, file));
      }
    }
  }
  CHECK(std::filesystem::is_empty(a.path()));
}

TEST_CASE("ranges and addresses that are not aligned change nothing around them", "[file_io][engine]") {
  const test::TempDir dir;
  for (const Backend backend : backends()) {
    FileEngine engine(options_for(backend));
    StripedFile file = file_in({dir.path(), dir.path()}, 200'000);
    const AlignedBuffer whole(200'000), part(70'000);
    test::fill_pattern(whole.bytes(), 1);
    engine.wait(engine.write(file, 0, whole.bytes()));
    test::fill_pattern(part.bytes(), 2);
    engine.wait(engine.write(file, 10'007, part.bytes().subspan(3, 60'001)));
    std::vector<std::byte> expected(whole.bytes().begin(), whole.bytes().end());
    std::copy_n(part.bytes().begin() + 3, 60'001, expected.begin() + 10'007);

    const AlignedBuffer back(200'000);
    engine.wait(engine.read(file, 0, back.bytes()));
    CHECK(std::equal(expected.begin(), expected.end(), back.bytes().begin()));
    engine.wait(engine.read(file, 9'999, back.bytes().subspan(1, 60'020)));
    CHECK(std::equal(expected.begin() + 9'999, expected.begin() + 9'999 + 60'020, back.bytes().begin() + 1));
  }
}

TEST_CASE("several threads have many requests in flight", "[file_io][engine]") {
  const test::TempDir a, b;
  constexpr int kThreads = 4, kRequests = 50;
  constexpr int64_t kBytes = 36'864;
  for (const Backend backend : backends()) {
    AlignedBuffer registered(kBytes * kThreads * kRequests);
    auto options = options_for(backend);
    options.buffers = {registered.bytes()};
    FileEngine engine(options);
    StripedFile file = file_in({a.path(), b.path()}, kBytes * kThreads * kRequests);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const auto offset = [&](int i) { return (static_cast<int64_t>(i) * kThreads + t) * kBytes; };
        const auto part = [&](int i) { return registered.bytes().subspan(static_cast<size_t>(offset(i)), kBytes); };
        std::vector<FileEngine::Ticket> tickets;
        for (int i = 0; i < kRequests; ++i) {
          test::fill_pattern(part(i), static_cast<uint32_t>(i * kThreads + t));
          tickets.push_back(engine.write(file, offset(i), part(i)));
        }
        for (const auto ticket : tickets) engine.wait(ticket);
      });
    }
    for (auto& thread : threads) thread.join();
    const AlignedBuffer back(file.bytes());
    std::vector<FileEngine::Ticket> tickets;
    for (int i = 0; i < kThreads * kRequests; ++i) {
      tickets.push_back(engine.read(file, i * kBytes, back.bytes().subspan(static_cast<size_t>(i * kBytes), kBytes)));
    }
    for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) engine.wait(*ticket);
    for (int i = 0; i < kThreads * kRequests; ++i) {
      CHECK(test::has_pattern(back.bytes().subspan(static_cast<size_t>(i * kBytes), kBytes), static_cast<uint32_t>(i)));
    }
  }
}

TEST_CASE("an engine ends while requests are in flight", "[file_io][engine]") {
  const test::TempDir dir;
  for (const Backend backend : backends()) {
    StripedFile file = file_in({dir.path()}, 1 << 22);
    const AlignedBuffer buffer(1 << 22);
    FileEngine engine(options_for(backend));
    engine.write(file, 0, buffer.bytes());
  }
}

TEST_CASE("a request of no bytes ends at once; one beyond the file is refused", "[file_io][engine]") {
  const test::TempDir dir;
  FileEngine engine(options_for(Backend::kThreads));
  StripedFile file = file_in({dir.path()}, 5000);
  const AlignedBuffer buffer(8192);
  engine.wait(engine.read(file, 5000, {}));
  CHECK_THROWS_AS(engine.read(file, 4096, buffer.bytes()), InternalError);
  const auto ticket = engine.read(file, 0, buffer.bytes().first(4096));
  engine.wait(ticket);
  CHECK_THROWS_AS(engine.wait(ticket), InternalError);
}
