// What an engine does when a file, the kernel or the machine refuses: each block passes a queue that fails as told, or
// the process has lost a right.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <set>
#include <string>

#include "engine_harness.hpp"
#include "file_io/file_engine.hpp"
#include "support/expect_error.hpp"
#include "support/faulty_queue.hpp"
#include "support/refused_system_call.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::file_io;

namespace {

// Lines that several threads write.
class Notes {
 public:
  Note sink() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

EngineOptions faulty(const test::Fault& fault) {
  EngineOptions options;
  options.block_size = 16384;
  options.queue_depth = 4;
  options.note = [](const auto&) {};
  options.wrap_queue = [fault](std::unique_ptr<BlockQueue> inner) {
    return std::make_unique<test::FaultyQueue>(std::move(inner), fault);
  };
  return options;
}

constexpr int64_t kBytes = 150'000;

StripedFile file_in(
    const std::string& directory, const Note& note = [](const auto&) {}) {
  return StripedFile({.directories = {directory}, .bytes = kBytes, .stripe_bytes = 65536, .note = note});
}

bool survives(const test::Fault& fault) {
  const test::TempDir dir;
  StripedFile file = file_in(dir.path());
  FileEngine engine(faulty(fault));
  return test::survives_round_trip(engine, file);
}

// Runs in a child, whose rights end with it.
template <class Body>
bool holds_in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(20);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

// Root in namespaces of its own, which has no rights outside of them.
bool enter_namespaces() {
  const std::string user = std::to_string(::getuid()), group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  test::write_file("/proc/self/setgroups", "deny");
  test::write_file("/proc/self/uid_map", "0 " + user + " 1");
  test::write_file("/proc/self/gid_map", "0 " + group + " 1");
  return true;
}

bool has_user_namespaces() {
  return holds_in_child(enter_namespaces);
}

}  // namespace

TEST_CASE("short reads and writes are continued", "[file_io][engine][faults]") {
  for (const int64_t bytes : {1000, 4096, 10'000}) {
    std::atomic<int> num_pushed = 0;
    CHECK(survives([&](const Block&) -> std::optional<int64_t> {
      ++num_pushed;
      return bytes;
    }));
    CHECK(num_pushed > 2 * kBytes / 16384 + 2);
  }
}

TEST_CASE("EINTR and EAGAIN are tried again", "[file_io][engine][faults]") {
  for (const int error : {EINTR, EAGAIN}) {
    std::atomic<int> num_pushed = 0;
    CHECK(survives([&](const Block&) -> std::optional<int64_t> {
      return ++num_pushed % 3 == 0 ? std::nullopt : std::optional<int64_t>(-error);
    }));
  }
}

TEST_CASE("a failed read or write names directory, offset, bytes and the reason", "[file_io][engine][faults]") {
  struct Row {
    bool is_write;
    int64_t result;
    const char* message;
  };
  const Row row =
      GENERATE(Row{false, -EIO, "read 16384 bytes at offset 32768 of the unnamed file in 'DIR': Input/output error"},
               Row{true, -ENOSPC,
                   "write 16384 bytes at offset 32768 of the unnamed file in 'DIR': No space left on "
                   "device (df, and df -i for inodes, show what has run out)"},
               Row{false, 0,
                   "read: unexpected end of file: 16384 bytes at offset 32768 of the unnamed file in "
                   "'DIR': Input/output error"});
  const test::TempDir dir;
  StripedFile file = file_in(dir.path());
  std::atomic<bool> is_broken = true;
  FileEngine engine(faulty([&](const Block& block) -> std::optional<int64_t> {
    const bool is_hit = is_broken && block.is_write == row.is_write && block.offset == 32768;
    return is_hit ? std::optional(row.result) : std::nullopt;
  }));
  const AlignedBuffer buffer(kBytes);
  CHECK(test::message_of(ExitCode::kIoError, dir.path(), [&] {
          engine.wait(row.is_write ? engine.write(file, 0, buffer.bytes()) : engine.read(file, 0, buffer.bytes()));
        }) == row.message);
  // Other requests, and later ones, are not concerned.
  engine.wait(engine.write(file, 0, buffer.bytes().first(16384)));
  is_broken = false;
  CHECK(test::survives_round_trip(engine, file));
}

TEST_CASE("a transfer that never begins is an error", "[file_io][engine][faults]") {
  const test::TempDir dir;
  StripedFile file = file_in(dir.path());
  FileEngine engine(faulty([](const Block&) { return std::optional<int64_t>(-EINTR); }));
  const AlignedBuffer buffer(4096);
  // EAGAIN ends likewise, after some ten seconds.
  test::expect_error(ExitCode::kIoError, {"Interrupted system call"},
                     [&] { engine.wait(engine.read(file, 0, buffer.bytes())); });
}

TEST_CASE("a file system that refuses O_DIRECT at a block gets it through the page cache",
          "[file_io][engine][faults]") {
  const test::TempDir dir;
  Notes notes;
  StripedFile file = file_in(dir.path(), notes.sink());
  if (!file.uses_direct(0)) return;  // refused at open already
  FileEngine engine(
      faulty([](const Block& block) { return block.is_direct ? std::optional<int64_t>(-EINVAL) : std::nullopt; }));
  CHECK(test::survives_round_trip(engine, file));
  CHECK(notes.lines() == std::vector<std::string>{"'" + dir.path() +
                                                  "' refuses O_DIRECT (Invalid argument): its files are read and "
                                                  "written through the page cache"});
}

TEST_CASE("EINVAL without O_DIRECT is an error", "[file_io][engine][faults]") {
  const test::TempDir dir;
  StripedFile file = file_in(dir.path());
  FileEngine engine(faulty([](const Block&) { return std::optional<int64_t>(-EINVAL); }));
  const AlignedBuffer buffer(4096);
  test::expect_error(ExitCode::kIoError, {"write 4096 bytes at offset 0", "Invalid argument"},
                     [&] { engine.wait(engine.write(file, 0, buffer.bytes())); });
}

TEST_CASE("a queue that breaks down ends every request, also later ones", "[file_io][engine][faults]") {
  const test::TempDir dir;
  StripedFile file = file_in(dir.path());
  auto options = faulty([](const Block&) -> std::optional<int64_t> { throw SystemError("ring", "lost", EBADF); });
  FileEngine engine(options);
  const AlignedBuffer buffer(kBytes);
  for (int i = 0; i < 2; ++i) {
    test::expect_error(ExitCode::kIoError, {"ring lost"}, [&] { engine.wait(engine.write(file, 0, buffer.bytes())); });
  }
}

TEST_CASE("threads take over where io_uring is forbidden", "[file_io][engine][faults]") {
  if (!test::has_uring()) return;
  // A filter may refuse the ring's creation or only its use.
  for (const unsigned number : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    for (const unsigned error : {EPERM, ENOSYS}) {
      CAPTURE(number, error);
      CHECK(test::holds_without(number, error, [&] {
        const test::TempDir dir;
        StripedFile file = file_in(dir.path());
        Notes notes;
        EngineOptions options;
        options.note = notes.sink();
        FileEngine engine(options);
        const std::string line = "io_uring is not available (" + describe_errno(static_cast<int>(error)) +
                                 "): 8 threads read and write files";
        return !engine.uses_uring() && notes.lines() == std::vector{line} && test::survives_round_trip(engine, file);
      }));
    }
  }
  CHECK(test::holds_without(SYS_io_uring_setup, EPERM, [] {
    EngineOptions options;
    options.backend = Backend::kUring;
    try {
      const FileEngine engine(options);
    } catch (const UserError& error) {
      return error.code() == ExitCode::kUnavailable &&
             error.what() == std::string("io_uring is not available: Operation not permitted");
    }
    return false;
  }));
}

TEST_CASE("buffers that may not be locked are used without registration", "[file_io][engine][faults]") {
  if (!test::has_uring() || !has_user_namespaces()) return;
  CHECK(holds_in_child([] {
    const test::TempDir dir;
    const rlimit limit{65536, 65536};
    // In a user namespace root has no CAP_IPC_LOCK that counts.
    if (!enter_namespaces() || ::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
    StripedFile file = file_in(dir.path());
    Notes notes;
    const AlignedBuffer buffer(1 << 20);
    EngineOptions options;
    options.note = notes.sink();
    options.buffers = {buffer.bytes()};
    FileEngine engine(options);
    const auto lines = notes.lines();
    return engine.uses_uring() && lines.size() == 1 && lines[0].starts_with("io_uring cannot register the buffers (") &&
           test::survives_round_trip(engine, file);
  }));
}

TEST_CASE("a full file system is an error before the first write", "[file_io][engine][faults]") {
  const auto fails = [](const std::string& directory, ExitCode code, const std::string& message) {
    try {
      const StripedFile file({.directories = {directory}, .bytes = 4 << 20, .note = [](const auto&) {}});
    } catch (const SystemError& error) {
      return error.code() == code && error.what() == message;
    }
    return false;
  };
  const test::TempDir dir;
  const std::string& path = dir.path();
  CHECK(holds_in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           fails(path, ExitCode::kCannotCreate, "reserve 4194304 bytes in '" + path + "': File too large");
  }));
  if (!has_user_namespaces()) return;
  CHECK(holds_in_child([&] {
    if (!enter_namespaces() || ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") != 0) return false;
    return fails(
        path, ExitCode::kIoError,
        "reserve 4194304 bytes in '" + path + "' (4.00 MiB to write, 1.00 MiB free): " + describe_errno(ENOSPC));
  }));
}
