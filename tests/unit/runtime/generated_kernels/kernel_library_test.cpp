// Kernels on disk: found again, and compiled again where the file is damaged, missing or cannot be written.
#include "runtime/generated_kernels/kernel_library.hpp"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "runtime/generated_kernels/compiler.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch::runtime::generated_kernels;
using dslaunch::test::read_file;
using dslaunch::test::TempDir;
using dslaunch::test::write_file;
namespace fs = std::filesystem;

namespace {

constexpr char kSource[] = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n";

bool has_compiler() {
  const auto found = Compiler::find();
  if (!found.ok()) WARN("not run: " << found.error());
  return found.ok();
}

std::string only_file(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path());
  REQUIRE(names.size() == 1);
  return names[0];
}

std::string code(KernelLibrary& library, const std::string& source = kSource) {
  const auto found = library.code(source, "sm_90");
  REQUIRE(found.ok());
  return **found;
}

}  // namespace

TEST_CASE("generated kernels: files hold what was written, for their own key only") {
  const TempDir directory;
  const KernelFiles files(directory / "a/b");
  CHECK_FALSE(files.read("key"));
  REQUIRE(files.write("key", std::string("co\0de", 5)).ok());
  CHECK(files.read("key") == std::string("co\0de", 5));
  CHECK_FALSE(files.read("other"));
  fs::copy_file(files.path_of("key"), files.path_of("kez"));
  CHECK_FALSE(files.read("kez"));
}

TEST_CASE("generated kernels: a damaged file is not read, and is replaced") {
  const TempDir directory;
  const KernelFiles files(directory.path());
  REQUIRE(files.write("key", "machine code").ok());
  const auto whole = read_file(files.path_of("key"));
  for (size_t length = 0; length < whole.size(); ++length) {
    write_file(files.path_of("key"), whole.substr(0, length));
    CHECK_FALSE(files.read("key"));
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    auto changed = whole;
    changed[i] ^= 1;
    write_file(files.path_of("key"), changed);
    CHECK_FALSE(files.read("key"));
  }
  REQUIRE(files.write("key", "machine code").ok());
  CHECK(files.read("key") == "machine code");
}

TEST_CASE("generated kernels: what cannot be written is said, and leaves nothing") {
  const TempDir directory;
  write_file(directory / "file", "");
  const auto written = KernelFiles(directory / "file/kernels").write("key", "code");
  REQUIRE_FALSE(written.ok());
  CHECK(written.error().find("file/kernels") != std::string::npos);
}

TEST_CASE("generated kernels: compiled once, then read from memory or disk") {
  if (!has_compiler()) return;
  const TempDir directory;
  KernelLibrary first(directory.path());
  const auto cubin = code(first);
  CHECK(code(first) == cubin);
  CHECK(first.counts().compiled == 1);

  KernelLibrary second(directory.path());
  CHECK(code(second) == cubin);
  CHECK(second.counts().compiled == 0);
  CHECK(second.counts().read == 1);

  write_file(only_file(directory.path()), "damaged");
  KernelLibrary third(directory.path());
  CHECK(code(third) == cubin);
  CHECK(third.counts().compiled == 1);
  KernelLibrary fourth(directory.path());
  code(fourth);
  CHECK(fourth.counts().read == 1);
}

TEST_CASE("generated kernels: without a directory, or with one that cannot be written, they live in memory") {
  if (!has_compiler()) return;
  const TempDir directory;
  write_file(directory / "file", "");
  for (const std::string& path : {std::string(), directory / "file/kernels"}) {
    KernelLibrary library(path);
    code(library);
    code(library);
    CHECK(library.counts().compiled == 1);
  }
}

TEST_CASE("generated kernels: architectures and sources do not share code") {
  if (!has_compiler()) return;
  const TempDir directory;
  KernelLibrary library(directory.path());
  const auto other = library.code(kSource, "sm_80");
  REQUIRE(other.ok());
  CHECK(**other != code(library));
  CHECK(library.counts().compiled == 2);
}

TEST_CASE("generated kernels: the compiler's log is the failure") {
  if (!has_compiler()) return;
  KernelLibrary library("");
  const auto found = library.code("__global__ void broken( {", "sm_90");
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().find("error") != std::string::npos);
}

TEST_CASE("generated kernels: several threads compile at once") {
  if (!has_compiler()) return;
  const TempDir directory;
  KernelLibrary library(directory.path());
  std::vector<std::string> codes(4);
  std::vector<std::thread> threads;
  for (auto& out : codes) {
    threads.emplace_back([&] {
      if (const auto found = library.code(kSource, "sm_90"); found.ok()) out = **found;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& one : codes) CHECK(one == codes[0]);
  CHECK_FALSE(codes[0].empty());
}

TEST_CASE("generated kernels: what was prepared is compiled once") {
  if (!has_compiler()) return;
  KernelLibrary library("");
  library.prepare(kSource, "sm_90");
  library.prepare(kSource, "sm_90");
  CHECK_FALSE(code(library).empty());
  CHECK(library.counts().compiled == 1);
  library.prepare(kSource, "sm_90");
  library.prepare("not CUDA", "sm_90");
}
