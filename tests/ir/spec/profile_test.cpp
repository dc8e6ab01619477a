#include "ir/spec/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using namespace trireme::literals;

// A diamond: a -> {b, c} -> d.
const char* const kDiamond =
    "name: diamond\n"
    "source: hand-made\n"
    "memory: 8 GiB\n"
    "microbatches: 16\n"
    "layers:\n"
    "  - {id: a, forward: 1 ms, backward: 2 ms, weights: 4 kB, activation: 1 MB}\n"
    "  - {id: b, name: B!, forward: 2 us, backward: 0 s, weights: 0 B, activation: 2 MB, stored: 3 "
    "MB}\n"
    "  - id: c\n"
    "    variants:\n"
    "      - {name: plain, tensor: 1, forward: 4 ms, backward: 8 ms, weights: 8 B}\n"
    "      - {name: split, tensor: 2, forward: 2 ms, backward: 4 ms, weights: 4 B,\n"
    "         resident: 1 KiB, sync_in: {a: 5 B}, sync_out: {d: 6 B}}\n"
    "  - {id: d, forward: 1 ms, backward: 2 ms, weights: 4 B}\n"
    "edges:\n"
    "  - {from: a, to: b}\n"
    "  - {from: a, to: c, transfer: 10 B}\n"
    "  - {from: b, to: d}\n"
    "  - {from: c, to: d, transfer: 0 B}\n";

const char* const kGraphTxt =
    "node2 -- Conv2d(3, 64, bias=True) -- forward_compute_time=1.500, "
    "backward_compute_time=2.500, activation_size=[1000.0; 24.0], parameter_size=7168.000\n"
    "node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, "
    "activation_size=5.0, parameter_size=0.0\n"
    "node3 -- ReLU(inplace) -- forward_compute_time=0.5, backward_compute_time=0.25, "
    "activation_size=8.0, parameter_size=0.000 -- stage_id=2\n"
    "node4 -- __getitem__(1) -- forward_compute_time=0.0, backward_compute_time=0.0, "
    "activation_size=8.0, parameter_size=0.000\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n"
    "\tnode2 -- node4\n";

const char* const kPiper = R"({
  "maxDevices": 10, "maxMemoryPerDevice": 8e9, "bandwidth": 25e9, "mbsInBatch": 1920,
  "nodes": [
    {"id": 7, "name": "in", "TMPCs": {"1": [
      {"id": "vanilla", "timePerSample": 0.5, "parameterSize": 100.0, "memoryUsageA": 1.0,
       "memoryUsageB": 2.0, "syncTimeFw": {}, "syncTimeBw": {"9": 0.0}}]}},
    {"id": 9, "TMPCs": {
      "1": [{"id": "vanilla", "timePerSample": 0.25, "parameterSize": 10.0, "memoryUsageA": 1.0,
             "memoryUsageB": 2.0, "syncTimeFw": {"7": 0}, "syncTimeBw": {}}],
      "2": [{"id": "vanilla", "timePerSample": 0.125, "parameterSize": 5.0, "memoryUsageA": 1.0,
             "memoryUsageB": 2.0, "syncTimeFw": {"7": 64.0}, "syncTimeBw": {}}]}}],
  "edges": [{"sourceId": 7, "destId": 9, "communicationCost": 32.0}]
})";

std::string replacing(const char* text, const std::string& from, const std::string& to,
                      const std::string& name) {
  return messageOf(parseProfile(replaced(text, from, to), name));
}
std::string own(const std::string& from, const std::string& to) {
  return replacing(kDiamond, from, to, "p.yaml");
}
std::string pipedream(const std::string& from, const std::string& to) {
  return replacing(kGraphTxt, from, to, "p.txt");
}
std::string piper(const std::string& from, const std::string& to) {
  return replacing(kPiper, from, to, "p.json");
}

TEST(ParseProfile, OwnFormHasUnitsVariantsAndEdges) {
  const ProfileSpec p = parseProfile(kDiamond, "p.yaml").value();
  EXPECT_EQ(p.name, "diamond");
  EXPECT_EQ(p.source, "hand-made");
  EXPECT_EQ(p.memory, 8_GiB);
  EXPECT_EQ(p.microbatches, 16);
  EXPECT_EQ(p.bandwidth, std::nullopt);
  ASSERT_EQ(p.layers.size(), 4u);
  EXPECT_EQ(p.layers[0].activation, 1_MB);
  EXPECT_EQ(p.layers[0].variants[0].time(), 3_ms);
  EXPECT_EQ(p.layers[1].name, "B!");
  EXPECT_EQ(p.layers[1].variants[0].stored, 3_MB);
  EXPECT_EQ(p.layers[1].variants[0].resident, std::nullopt);
  ASSERT_EQ(p.layers[2].variants.size(), 2u);
  const ProfileVariant& split = p.layers[2].variants[1];
  EXPECT_EQ(split.tensorDegree, 2);
  EXPECT_EQ(split.resident, 1024_B);
  EXPECT_EQ(split.sync, (std::vector<EdgeBytes>{{1, 5_B}, {3, 6_B}}));
  EXPECT_EQ(p.edges,
            (std::vector<ProfileEdge>{{0, 1, 1_MB}, {0, 2, 10_B}, {1, 3, 2_MB}, {2, 3, 0_B}}));
}

TEST(ParseProfile, ChainJoinsNeighbours) {
  const ProfileSpec chain = parseProfile(
                                "source: s\nlayers:\n"
                                "  - {id: 1, forward: 1 s, backward: 1 s, weights: 1 B, "
                                "activation: 5 B}\n"
                                "  - {id: 2, forward: 1 s, backward: 1 s, weights: 1 B}\n"
                                "edges: chain\n",
                                "p.yaml")
                                .value();
  EXPECT_EQ(chain.edges, (std::vector<ProfileEdge>{{0, 1, 5_B}}));
}

TEST(ParseProfile, PrintedProfileReadsBackTheSame) {
  for (const auto& [text, name] : {std::pair{kDiamond, "p.yaml"}, std::pair{kGraphTxt, "p.txt"},
                                   std::pair{kPiper, "p.json"}}) {
    const ProfileSpec p = parseProfile(text, name).value();
    EXPECT_EQ(parseProfile(printProfile(p), "p.yaml").value(), p) << printProfile(p);
  }
}

// Input is left out with its 9 ms, and the output that nobody reads.
TEST(ParseProfile, PipedreamFormIsInMillisecondsAndBytes) {
  const ProfileSpec p = parseProfile(kGraphTxt, "p.txt").value();
  ASSERT_EQ(p.layers.size(), 2u);
  EXPECT_EQ(p.layers[0].id, "node2");
  EXPECT_EQ(p.layers[0].name, "Conv2d(3, 64, bias=True)");
  EXPECT_EQ(p.layers[0].variants[0].forward, Seconds(1.5e-3));
  EXPECT_EQ(p.layers[0].variants[0].backward, Seconds(2.5e-3));
  EXPECT_EQ(p.layers[0].variants[0].weights, 7168_B);
  EXPECT_EQ(p.layers[0].variants[0].stored, std::nullopt);
  EXPECT_EQ(p.layers[0].activation, 1024_B);
  EXPECT_EQ(p.edges, (std::vector<ProfileEdge>{{0, 1, 1024_B}}));
}

TEST(ParseProfile, PiperFormHasVariantsByTensorDegree) {
  const ProfileSpec p = parseProfile(kPiper, "p.json").value();
  EXPECT_EQ(p.devices, 10);
  EXPECT_EQ(p.microbatches, 1920);
  EXPECT_EQ(p.memory, Bytes(8e9));
  EXPECT_EQ(p.bandwidth, BytesPerSecond(25e9));
  ASSERT_EQ(p.layers.size(), 2u);
  EXPECT_EQ(p.layers[0].id, "7");
  EXPECT_EQ(p.layers[0].name, "in");
  EXPECT_EQ(p.layers[0].activation, std::nullopt);
  ASSERT_EQ(p.layers[1].variants.size(), 2u);
  const ProfileVariant& v = p.layers[1].variants[1];
  EXPECT_EQ(v.tensorDegree, 2);
  EXPECT_EQ(v.time(), Seconds(0.125));
  EXPECT_EQ(v.stored, 1_B);
  EXPECT_EQ(v.resident, 2_B);
  EXPECT_EQ(v.sync, (std::vector<EdgeBytes>{{0, 64_B}}));
  EXPECT_EQ(p.edges, (std::vector<ProfileEdge>{{0, 1, 32_B}}));
}

TEST(ParseProfile, F1DuplicateAndMissingIds) {
  EXPECT_THAT(own("id: b", "id: a"), HasSubstr("p.yaml:7:5: (F1) layer 'a' is there twice, first "
                                               "in line 6"));
  EXPECT_THAT(own("id: b", "id: \"\""), HasSubstr("p.yaml:7:5: (F1) the id of a layer is empty"));
  EXPECT_THAT(own("id: b, ", ""), HasSubstr("p.yaml:7:5: layers[1].id: missing"));
  EXPECT_THAT(pipedream("node3 --", "node2 --"), HasSubstr("p.txt:3:1: (F1) layer 'node2' is there "
                                                           "twice, first in line 1"));
  EXPECT_THAT(piper("\"id\": 9", "\"id\": 7"), HasSubstr("p.json:7:5: (F1) layer '7' is there"));
  EXPECT_THAT(messageOf(parseProfile("source: s\nlayers: []\nedges: chain\n", "p.yaml")),
              HasSubstr("(F1) the profile has no layers"));
}

TEST(ParseProfile, F2EdgesJoinKnownLayersOnce) {
  EXPECT_THAT(pipedream("\tnode2 -- node3", "\tnode2 -- node33"),
              HasSubstr("p.txt:6:1: (F2) there is no layer 'node33'; did you mean 'node3'?"));
  EXPECT_THAT(own("from: b, to: d", "from: a, to: b"),
              HasSubstr("p.yaml:17:5: (F2) the edge from 'a' to 'b' is there twice, first in line "
                        "15"));
  EXPECT_THAT(piper("\"destId\": 9", "\"destId\": 8"), HasSubstr("(F2) there is no layer '8'"));
}

TEST(ParseProfile, F3CyclesAreNamed) {
  EXPECT_THAT(own("from: b, to: d", "from: d, to: a, transfer: 1 B"),
              HasSubstr("p.yaml:17:5: (F3) the graph has a cycle: 'a' -> 'c' -> 'd' -> 'a'"));
  EXPECT_THAT(pipedream("\tnode2 -- node4", "\tnode3 -- node2"),
              HasSubstr("p.txt:7:1: (F3) the graph has a cycle: 'node2' -> 'node3' -> 'node2'"));
  EXPECT_THAT(own("from: a, to: b", "from: a, to: a"),
              HasSubstr("p.yaml:15:5: (F3) layer 'a' reads its own output"));
}

TEST(ParseProfile, F4DisconnectedGraphsNameALayerOfEachPart) {
  EXPECT_THAT(replacing(replaced(kDiamond, "  - {from: b, to: d}\n", "").c_str(),
                        "  - {from: a, to: b}\n", "", "p.yaml"),
              HasSubstr("p.yaml:7:5: (F4) no edges lead from layer 'a' to layer 'b'"));
  EXPECT_THAT(pipedream("\tnode2 -- node4\n", ""), HasSubstr("p.txt:4:1: (F4)"));
}

TEST(ParseProfile, F5NumbersAreMeasured) {
  EXPECT_THAT(own("forward: 1 ms", "forward: 1"), HasSubstr("p.yaml:6:"));
  EXPECT_THAT(own("forward: 1 ms", "forward: -1 ms"), HasSubstr("(F5) must not be negative"));
  EXPECT_THAT(own("forward: 1 ms, ", ""), HasSubstr("layers[0].forward: missing"));
  EXPECT_THAT(own("microbatches: 16", "microbatches: 0"),
              HasSubstr("p.yaml:4:15: microbatches: (F5) must be 1 to 1073741824, got 0"));
  EXPECT_THAT(own("memory: 8 GiB", "memory: 0 B"), HasSubstr("memory: (F5) must be above 0"));
  EXPECT_THAT(own("weights: 4 kB", "weights: 1e300 B"), HasSubstr("(F5) must be at most 1e+18"));
  EXPECT_THAT(pipedream("=1.500", "=fast"),
              HasSubstr("p.txt:1:59: 'fast': expected a decimal number"));
  EXPECT_THAT(pipedream("=2.500", "=-2.500"), HasSubstr("(F5) must not be negative, got -2.5"));
  EXPECT_THAT(pipedream(", parameter_size=7168.000", ""),
              HasSubstr("layer 'node2': parameter_size: missing"));
  EXPECT_THAT(piper("\"timePerSample\": 0.5, ", ""),
              HasSubstr("nodes[0].TMPCs.1[0].timePerSample: missing"));
  EXPECT_THAT(piper("\"maxDevices\": 10", "\"maxDevices\": 0"),
              HasSubstr("p.json:2:17: maxDevices: (F5)"));
}

TEST(ParseProfile, F6VariantsAreDistinct) {
  EXPECT_THAT(own("{name: split, tensor: 2", "{name: plain, tensor: 1"),
              HasSubstr("p.yaml:11:9: (F6) layer 'c' has two variants 'plain' at tensor degree 1"));
  EXPECT_THAT(own("tensor: 2", "tensor: 0"), HasSubstr("(F6) a tensor degree is 1 to"));
  EXPECT_THAT(piper("\"2\": [", "\"two\": ["),
              HasSubstr("expected a tensor degree as the key, got 'two'"));
}

TEST(ParseProfile, F7SyncIsWithNeighbours) {
  EXPECT_THAT(own("sync_in: {a", "sync_in: {b"),
              HasSubstr("p.yaml:12:37: (F7) layer 'c' has no input from 'b'; did you mean 'a'?"));
  EXPECT_THAT(piper("{\"7\": 64.0}", "{\"9\": 64.0}"), HasSubstr("(F7) layer '9' has no input"));
  EXPECT_THAT(piper("{\"7\": 64.0}", "{}"), HasSubstr("syncTimeFw.7: missing"));
}

TEST(ParseProfile, UnknownKeysGetTheNearestValidOne) {
  EXPECT_THAT(own("name: diamond", "nam: diamond"), HasSubstr("did you mean 'name'?"));
  EXPECT_THAT(own("forward: 1 ms", "foward: 1 ms"),
              HasSubstr("p.yaml:6:13: layers[0]: unknown key 'foward'; did you mean 'forward'?"));
  EXPECT_THAT(own("tensor: 2", "tensors: 2"), HasSubstr("did you mean 'tensor'?"));
  EXPECT_THAT(own("to: b", "too: b"), HasSubstr("did you mean 'to'?"));
  EXPECT_THAT(own("source: hand-made\n", ""), HasSubstr("source: missing"));
  EXPECT_THAT(pipedream("backward_compute_time=2.500", "backward_compute_tme=2.500"),
              HasSubstr("p.txt:1:66: unknown key 'backward_compute_tme'; did you mean "
                        "'backward_compute_time'?"));
  EXPECT_THAT(piper("\"timePerSample\": 0.5", "\"timePerSampl\": 0.5"),
              HasSubstr("did you mean 'timePerSample'?"));
}

TEST(ParseProfile, LinesOfAnotherFormAreShown) {
  EXPECT_THAT(messageOf(parseProfile("layers: 4\n", "p.txt")),
              HasSubstr("p.txt:1:1: expected 'id -- layer -- forward_compute_time=..., ...'"));
  EXPECT_THAT(pipedream("\tnode2 -- node3", "\tnode2 > node3"),
              HasSubstr("p.txt:6:1: expected a tab and 'from -- to'"));
  EXPECT_THAT(own("edges:\n  - {from: a, to: b}", "edges: {a: b}\nmore:\n  - {from: a, to: b}"),
              HasSubstr("unknown key 'more'"));
  EXPECT_THAT(messageOf(parseProfile("source: s\nlayers: {}\nedges: chain\n", "p.yaml")),
              HasSubstr("p.yaml:2:9: layers: expected a list, got a map"));
}

}  // namespace
}  // namespace trireme::spec
