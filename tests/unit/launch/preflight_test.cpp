#include "launch/agent/preflight.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/deadline.hpp"
#include "launch/process/elf_section.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;

namespace {

// An archive of one stored record, as Python's zipfile writes it: an independent hand.
void write_archive(const std::string& path, const std::string& content) {
  std::string command =
      "python3 -c \"import sys, zipfile; zipfile.ZipFile(sys.argv[1], 'w').writestr('data', sys.argv[2])\" '" + path +
      "' '" + content + "'";
  REQUIRE(std::system(command.c_str()) == 0);
}

const std::map<std::string, std::string> kEnvironment{{"PATH", "/usr/bin:/bin"}};

std::string script(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body;
  REQUIRE(std::system(("chmod +x '" + path + "'").c_str()) == 0);
  return path;
}

}  // namespace

TEST_CASE("a model's fingerprint follows its content, not its name", "[launch][preflight]") {
  test::TempDir dir;
  write_archive(dir / "a.pt", "weights one");
  write_archive(dir / "b.pt", "weights two");
  write_archive(dir / "c.pt", "weights one");
  CHECK(model_fingerprint(dir / "a.pt") != model_fingerprint(dir / "b.pt"));
  Preflight preflight = make_preflight(dir / "a.pt");
  CHECK(preflight.model_bytes > 100);
  preflight.worker_version.clear();
  preflight.model = dir / "c.pt";
  // Times of writing are part of an archive's directory; the same second is likely but not certain.
  preflight.model_fingerprint = model_fingerprint(dir / "c.pt");
  CHECK_NOTHROW(check_preflight(preflight, "", {}));
  preflight.model = dir / "b.pt";
  test::expect_error(ExitCode::kBadInput, {"b.pt", "differs from the launching host's"},
                     [&] { check_preflight(preflight, "", {}); });
  preflight.model = dir / "none.pt";
  test::expect_error(ExitCode::kNoInput, {"none.pt"}, [&] { check_preflight(preflight, "", {}); });
  test::expect_error(ExitCode::kNoInput, {"none.pt", "No such file"}, [&] { make_preflight(dir / "none.pt"); });
}

TEST_CASE("a file that is not an archive is not a model", "[launch][preflight]") {
  test::TempDir dir;
  for (std::string content : {"", "x", "PK\5\6", "a longer text without any end record in it"}) {
    std::ofstream(dir / "m.pt", std::ios::binary) << content;
    test::expect_error(ExitCode::kBadInput, {"m.pt"}, [&] { model_fingerprint(dir / "m.pt"); });
  }
}

TEST_CASE("a worker of another version, or one that does not start, is refused with what it said",
          "[launch][preflight]") {
  test::TempDir dir;
  Preflight preflight{.worker_version = "dsworker 7"};
  CHECK_NOTHROW(check_preflight(preflight, script(dir / "same", "echo dsworker 7\n"), kEnvironment));
  test::expect_error(ExitCode::kUnavailable, {"dsworker 6", "dsworker 7"},
                     [&] { check_preflight(preflight, script(dir / "other", "echo dsworker 6\n"), kEnvironment); });
  test::expect_error(ExitCode::kUnavailable, {"libtorch_cpu.so: not found"}, [&] {
    check_preflight(preflight, script(dir / "broken", "echo libtorch_cpu.so: not found >&2; exit 127\n"), kEnvironment);
  });
  test::expect_error(ExitCode::kUnavailable, {"nothing"}, [&] { check_preflight(preflight, dir / "nothing", {}); });
}

TEST_CASE("a worker that printed its version and does not exit is not waited for", "[launch][preflight]") {
  test::TempDir dir;
  const Deadline soon = Deadline::after(30s);
  check_preflight({.worker_version = "dsworker 7"},
                  script(dir / "lingering", "echo dsworker 7; exec >&- 2>&-; exec sleep 60\n"), kEnvironment);
  CHECK_FALSE(soon.passed());
}

TEST_CASE("a program's section is read from its file; other files have none", "[launch][preflight]") {
  test::TempDir dir;
  REQUIRE(std::system(("printf 'dsworker 7' > '" + (dir / "text") + "' && objcopy --add-section .dslaunch.version='" +
                       (dir / "text") + "' /bin/true '" + (dir / "program") + "'")
                          .c_str()) == 0);
  CHECK(elf_section_text(dir / "program", ".dslaunch.version") == "dsworker 7");
  CHECK(elf_section_text("/bin/true", ".dslaunch.version").empty());
  CHECK(elf_section_text(dir / "text", ".dslaunch.version").empty());
  CHECK(elf_section_text(dir / "none", ".dslaunch.version").empty());
  CHECK(elf_section_text("/", ".dslaunch.version").empty());
  // A program that is cut off, as by a copy that failed, has its section table at an end that is not there.
  std::filesystem::resize_file(dir / "program", std::filesystem::file_size(dir / "program") - 100);
  CHECK(elf_section_text(dir / "program", ".dslaunch.version").empty());
}

TEST_CASE("the search path of a program's libraries is read from its file", "[launch][preflight]") {
  test::TempDir dir;
  const auto link = [&](const std::string& options) {
    return std::system(
        ("cd '" + dir.path() + "' && printf 'int main() { return 0; }' > main.c && cc -o program main.c " + options)
            .c_str());
  };
  for (const char* tags : {"-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"}) {
    REQUIRE(link(std::string(tags) + " '-Wl,-rpath,$ORIGIN/../../torch/lib:/opt/torch'") == 0);
    CHECK(elf_run_path(dir / "program") == "$ORIGIN/../../torch/lib:/opt/torch");
  }
  REQUIRE(link("") == 0);
  CHECK(elf_run_path(dir / "program").empty());
  CHECK(elf_run_path(dir / "main.c").empty());
}

TEST_CASE("a worker whose file states the version is loaded, not run", "[launch][preflight]") {
  test::TempDir dir;
  REQUIRE(std::system(("cd '" + dir.path() +
                       "' && printf 'int torch_is_here = 1;' > torch.c && cc -shared -o libtorch_cpu.so torch.c && "
                       "printf '#include <stdio.h>\nextern int torch_is_here;\n"
                       "__attribute__((section(\".dslaunch.version\"), used)) const char version[] = \"dsworker 7\";\n"
                       "int main(void) { fclose(fopen(\"ran\", \"w\")); return torch_is_here; }' > worker.c && "
                       "cc -o worker worker.c -L. -ltorch_cpu -Wl,-rpath,'\''$ORIGIN'\''")
                          .c_str()) == 0);
  check_preflight({.worker_version = "dsworker 7"}, dir / "worker", kEnvironment);
  CHECK_FALSE(std::filesystem::exists("ran"));
  std::filesystem::remove(dir / "libtorch_cpu.so");
  test::expect_error(ExitCode::kUnavailable, {"libtorch_cpu.so", "install it with scripts/setup"},
                     [&] { check_preflight({.worker_version = "dsworker 7"}, dir / "worker", kEnvironment); });
}
