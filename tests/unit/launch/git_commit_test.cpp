#include "launch/plan/git_commit.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using launch::git_commit_of;

namespace {

const std::string kFirst(40, 'a'), kSecond(40, 'b'), kThird(40, 'c');

}  // namespace

TEST_CASE("the commit that is checked out is read from the repository's files", "[launch][git_commit]") {
  const test::TempDir dir;
  for (const char* name : {"repo/.git/refs/heads", "repo/src/deep", "repo/.git/worktrees/w", "tree"}) {
    std::filesystem::create_directories(dir / name);
  }
  CHECK(git_commit_of(dir / "tree").empty());
  CHECK(git_commit_of(dir / "repo").empty());  // no HEAD yet
  SECTION("a branch, from a directory inside") {
    dir.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    CHECK(git_commit_of(dir / "repo").empty());  // without a commit
    dir.write("repo/.git/refs/heads/main", kFirst + "\n");
    CHECK(git_commit_of(dir / "repo/src/deep") == kFirst);
  }
  SECTION("a packed branch") {
    dir.write("repo/.git/HEAD", "ref: refs/heads/x\n");
    dir.write("repo/.git/packed-refs", "# pack-refs\n" + kFirst + " refs/heads/xx\n" + kSecond + " refs/heads/x\n");
    CHECK(git_commit_of(dir / "repo") == kSecond);
  }
  SECTION("a commit by itself") {
    dir.write("repo/.git/HEAD", kThird + "\n");
    CHECK(git_commit_of(dir / "repo") == kThird);
  }
  SECTION("a worktree") {
    dir.write("tree/.git", "gitdir: " + (dir / "repo/.git/worktrees/w") + "\n");
    dir.write("repo/.git/worktrees/w/HEAD", "ref: refs/heads/w\n");
    dir.write("repo/.git/worktrees/w/commondir", "../..\n");
    dir.write("repo/.git/refs/heads/w", kSecond + "\n");
    CHECK(git_commit_of(dir / "tree") == kSecond);
  }
  SECTION("something else in HEAD") {
    dir.write("repo/.git/HEAD", "<html>\n");
    CHECK(git_commit_of(dir / "repo").empty());
  }
}
