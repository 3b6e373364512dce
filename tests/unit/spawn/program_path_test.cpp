#include "spawn/program_path.hpp"

#include <catch2/catch.hpp>

using dslaunch::spawn::program_candidates;
using Paths = std::vector<std::string>;

TEST_CASE("a name with a slash is the file itself", "[spawn][program_path]") {
  CHECK(program_candidates("./a", "/bin") == Paths{"./a"});
  CHECK(program_candidates("/x/y", "") == Paths{"/x/y"});
}

TEST_CASE("a bare name is looked for in each folder in order", "[spawn][program_path]") {
  CHECK(program_candidates("sh", "/usr/bin:/bin") == Paths{"/usr/bin/sh", "/bin/sh"});
}

TEST_CASE("an empty PATH entry is the current directory", "[spawn][program_path]") {
  CHECK(program_candidates("a", "/bin::/usr/bin:") == Paths{"/bin/a", "./a", "/usr/bin/a", "./a"});
  CHECK(program_candidates("a", "") == Paths{"./a"});
}
