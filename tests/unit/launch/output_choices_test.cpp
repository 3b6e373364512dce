#include "launch/plan/output_choices.hpp"

#include <catch2/catch.hpp>

#include "../../support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("streams are chosen for all ranks or one by one", "[launch][output_choices]") {
  StreamChoice none = parse_stream_choice("--tee", "0");
  CHECK_FALSE(none.any());
  CHECK_FALSE(none.has(0, Stream::kOut));
  StreamChoice errors = parse_stream_choice("--tee", "2");
  CHECK(errors.has(7, Stream::kErr));
  CHECK_FALSE(errors.has(7, Stream::kOut));
  // torchrun takes single digits only.
  StreamChoice some = parse_stream_choice("--tee", "0:3,12:1,3:0");
  CHECK((some.has(0, Stream::kOut) && some.has(0, Stream::kErr)));
  CHECK((some.has(12, Stream::kOut) && !some.has(12, Stream::kErr)));
  CHECK_FALSE(some.has(3, Stream::kOut));
  CHECK_FALSE(some.has(1, Stream::kOut));
}

TEST_CASE("an invalid choice of streams is refused with the grammar", "[launch][output_choices]") {
  for (const char* text : {"", "4", "-1", "x", "0:4", "0:", ":1", "0:1,", "0:1,0:2", "0:1:1", "1,2", "+1", "0:1 "}) {
    CAPTURE(text);
    test::expect_error(ExitCode::kUsage, {"--redirects", "RANK:VALUE"},
                       [&] { parse_stream_choice("--redirects", text); });
  }
}

TEST_CASE("a list of local ranks", "[launch][output_choices]") {
  CHECK(parse_rank_list("--local_ranks_filter", "0,12,3") == std::vector<int>{0, 12, 3});
  for (const char* text : {"", "1,", "a", "-1", "0-3"}) {
    CAPTURE(text);
    test::expect_error(ExitCode::kUsage, {"--local_ranks_filter"},
                       [&] { parse_rank_list("--local_ranks_filter", text); });
  }
}
