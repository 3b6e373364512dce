#include "runtime/checkpoint/shared_folder.hpp"

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/store.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A network file system shows a new file to other hosts a moment later.
constexpr auto kVisibleTime = 5000ms;
constexpr const char* kKeys = "checkpoint/shared/";

std::string key(const std::string& name) {
  return kKeys + name;
}

// Its name is the question: nobody else can have put it there.
std::string make_probe(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  std::string name = ".seen-by-all-" + to_hex(random_bytes(8));
  std::ofstream file(dir + "/" + name);
  file.close();
  if (!file) throw SystemError("create a file", dir, error ? error.value() : errno, ExitCode::kCannotCreate);
  return name;
}

bool appears(const std::string& path) {
  Deadline patience = Deadline::after(kVisibleTime);
  std::error_code ignored;
  while (!fs::exists(path, ignored)) {
    if (patience.passed()) return false;
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

std::string verdict_on(const std::string& dir, int world_size, rendezvous::Store& store, Deadline deadline) {
  std::vector<int> blind;
  for (int rank = 1; rank < world_size; ++rank) {
    if (store.get(key(std::to_string(rank)), deadline) != "seen") blind.push_back(rank);
  }
  if (blind.empty()) return {};
  return fmt::format(
      "rank{} {} cannot see {}, where rank 0 keeps the checkpoints: put --run_dir (or checkpoint.dir) on a "
      "file system that all hosts share, or switch checkpoints off (checkpoint.at_end and on_interrupt false)",
      blind.size() == 1 ? "" : "s", fmt::join(blind, ", "), dir);
}

}  // namespace

void require_shared_folder(const std::string& dir, int rank, int world_size, rendezvous::Store& store,
                           Deadline deadline) {
  if (rank > 0) {
    std::string name = store.get(key("name"), deadline);
    if (!name.empty()) store.set(key(std::to_string(rank)), appears(dir + "/" + name) ? "seen" : "blind", deadline);
    std::string verdict = store.get(key("verdict"), deadline);
    if (!verdict.empty()) throw UserError(ExitCode::kCannotCreate, verdict);
    return;
  }
  try {
    std::string name = make_probe(dir);
    store.set(key("name"), name, deadline);
    std::string verdict = verdict_on(dir, world_size, store, deadline);
    std::error_code ignored;
    fs::remove(dir + "/" + name, ignored);
    store.set(key("verdict"), verdict, deadline);
    if (!verdict.empty()) throw UserError(ExitCode::kCannotCreate, verdict);
  } catch (const SystemError& error) {
    store.set(key("name"), "", deadline);
    store.set(key("verdict"), error.what(), deadline);
    throw;
  }
}

}  // namespace dslaunch::runtime
