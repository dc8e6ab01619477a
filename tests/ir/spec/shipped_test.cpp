#include "ir/spec/shipped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Shipped, IsWhatTheExamplesFolderHas) {
  size_t numFiles = 0;
  for (const char* folder : {"models", "clusters", "stacks", "devices", "links"})
    for (const auto& entry : std::filesystem::directory_iterator(examplePath(folder)))
      numFiles += entry.path().extension() == ".yaml";
  EXPECT_EQ(shippedFiles().size(), numFiles);
  for (const ShippedFile& file : shippedFiles()) {
    std::ifstream stream(std::string(TRIREME_SOURCE_DIR) + "/" + shippedPath(file));
    std::ostringstream text;
    text << stream.rdbuf();
    EXPECT_EQ(file.text, text.str()) << shippedPath(file);
  }
}

TEST(Shipped, NamesMayHaveDots) {
  EXPECT_THAT(shippedNames(ShippedKind::kModel), Contains("gpt2-1.5b"));
  EXPECT_NE(findShipped(ShippedKind::kModel, "gpt2-1.5b"), nullptr);
  EXPECT_EQ(findShipped(ShippedKind::kModel, "gpt2-1"), nullptr);
}

TEST(Shipped, EveryDeviceAndLinkIsUsedByACluster) {
  for (const ShippedKind kind : {ShippedKind::kDevice, ShippedKind::kLink})
    for (const std::string& name : shippedNames(kind)) {
      bool used = false;
      for (const ShippedFile& file : shippedFiles())
        used |= file.kind == ShippedKind::kCluster &&
                file.text.find(" " + name + "\n") != std::string_view::npos;
      EXPECT_TRUE(used) << name;
    }
}

TEST(LoadByName, FindsModelsClustersAndStacks) {
  EXPECT_EQ(loadModel("gpt3-175b")->name, "gpt3-175b");
  EXPECT_EQ(loadCluster("dgx-a100")->name, "dgx-a100");
  EXPECT_EQ(loadStack("trireme")->name, "trireme");
  EXPECT_TRUE(loadForeignDropout("gpt3-175b")->empty());
}

TEST(LoadByName, AnUnknownNameListsTheNearest) {
  EXPECT_EQ(messageOf(loadStack("trirem")),
            "trirem: there is no such file and no stack of this name; did you mean 'trireme'?");
  EXPECT_EQ(messageOf(loadCluster("dgx-a10")),
            "dgx-a10: there is no such file and no cluster of this name; did you mean 'dgx-a100'?");
  EXPECT_EQ(messageOf(loadCluster("v100")),
            "v100: there is no such file and no cluster of this name; clusters with that device: "
            "dgx-1v, dgx-2, p3-16xlarge");
  EXPECT_THAT(messageOf(loadCluster("gb200")), HasSubstr("that device: gb200-nvl72"));
  EXPECT_THAT(messageOf(loadCluster("nvl72")),
              HasSubstr("did you mean 'gb200-nvl72' or 'gb300-nvl72'?"));
  EXPECT_THAT(messageOf(loadModel("bert")),
              HasSubstr("there is no such file and no model of this name; valid: gpt-1.7b, "));
}

TEST(LoadByName, APathIsAPath) {
  EXPECT_THAT(messageOf(loadStack("./nemo")), HasSubstr("./nemo: cannot read: No such file"));
  EXPECT_THAT(messageOf(loadCluster("dgx-a10.yaml")),
              HasSubstr("dgx-a10.yaml: cannot read: No such file"));
}

}  // namespace
}  // namespace trireme::spec
