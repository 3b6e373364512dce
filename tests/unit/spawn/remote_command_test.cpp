#include "spawn/ssh/remote_command.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"
#include "spawn/program/program_link.hpp"
#include "unit/spawn/link_ends.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;

namespace {

// What a shell makes of the command's words, each ended by a NUL.
std::string through(const std::string& shell, const std::string& command) {
  auto link = open_program_link({shell, "-c", command}, {});
  return converse(*link);
}

std::vector<std::string> odd_words() {
  std::vector<std::string> words = {"",  " ",  "'",     "''",    "\n",  "a\nb",     "$HOME", "`id`",  "a;b",
                                    "*", "~",  "~root", "-n",    "!",   "\\",       "\\'",   "a'b'c", "\"",
                                    "#", "=x", "%1",    "{a,b}", "a&b", "\xff\xfe", "é"};
  std::mt19937 random(20261121);
  for (int i = 0; i < 300; ++i) {
    std::string word(random() % 24, '\0');
    for (char& byte : word) byte = static_cast<char>(random() % 255 + 1);
    words.push_back(word);
  }
  return words;
}

}  // namespace

TEST_CASE("every byte of an argument arrives through a shell", "[spawn][remote_command]") {
  auto shell = GENERATE(as<std::string>(), "/bin/sh", "/bin/bash");
  std::vector<std::string> argv = {"printf", "%s\\0"};
  std::string expected;
  for (const auto& word : odd_words()) {
    argv.push_back(word);
    expected += word + '\0';
  }
  CHECK(through(shell, remote_command(argv)) == expected);
}

TEST_CASE("a plain word stays as it is, and a NUL is refused", "[spawn][remote_command]") {
  CHECK(remote_command({"/opt/x/bin/dslaunch", "agent", "a b"}) == "/opt/x/bin/dslaunch agent 'a b'");
  CHECK_THROWS_AS(remote_command({std::string("a\0b", 3)}), UserError);
}
