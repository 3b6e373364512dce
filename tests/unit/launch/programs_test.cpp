#include "launch/programs.hpp"

#include <catch2/catch.hpp>

using dslaunch::launch::malloc_in_large_pages;

TEST_CASE("large pages are asked for behind the user's own settings of glibc", "[launch][programs]") {
  CHECK(malloc_in_large_pages("") == "glibc.malloc.hugetlb=1");
  CHECK(malloc_in_large_pages("glibc.malloc.arena_max=2") == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1");
  CHECK(malloc_in_large_pages("glibc.malloc.hugetlb=0:glibc.malloc.check=1") ==
        "glibc.malloc.hugetlb=0:glibc.malloc.check=1");
}
