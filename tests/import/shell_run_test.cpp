// What scripts run, followed without running them: words, variables, control flow.
#include "codegen/import/shell_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/import/shell_arithmetic.h"
#include "codegen/import/shell_test.h"
#include "tests/support/damaged_text.h"

namespace trireme::codegen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ShellRun> followed(const std::string& text, const std::vector<size_t>& choices = {}) {
  const std::string file = "run.sh";
  const std::map<std::string, ShellValue> variables;
  TRIREME_ASSIGN_OR_RETURN(const ShellList script, parseShell(text, file, 1));
  return runShell({script, file, variables}, choices);
}

// Commands and their words, open parts between < and >.
std::vector<std::string> commandsOf(const std::string& text,
                                    const std::vector<size_t>& choices = {}) {
  const Result<ShellRun> run = followed(text, choices);
  if (!run.has_value()) return {run.error().message()};
  std::vector<std::string> commands;
  for (const ShellLaunch& launch : run->launches) {
    std::vector<std::string> words;
    for (const ShellText& word : launch.words) words.push_back(word.text);
    std::string joined = fmt::format("{}", fmt::join(words, "|"));
    std::replace(joined.begin(), joined.end(), kOpenBegin, '<');
    std::replace(joined.begin(), joined.end(), kOpenEnd, '>');
    commands.push_back(std::move(joined));
  }
  return commands;
}

TEST(ShellWords, AreThoseOfBash) {
  EXPECT_THAT(commandsOf("a 'b c' \"d \\\" e\" f\\ g"), ElementsAre("a|b c|d \" e|f g"));
  EXPECT_THAT(commandsOf("a \\\n  y#z # not this\nb; c && d"), ElementsAre("a|y#z", "b", "c", "d"));
  EXPECT_THAT(commandsOf("a x'y z'\"$(b \"c\" ')')\" `d e` $'f'"),
              ElementsAre("a|xy z<$(b \"c\" ')')>|<`d e`>|f"));
  EXPECT_THAT(commandsOf("a \"x\" '' \"\" > out.txt 2>&1 < in"), ElementsAre("a|x||"));
  EXPECT_EQ(followed("a\nb \\\nc")->launches[1].words[1].line, 3);
}

TEST(ShellWords, WhatDoesNotEndHasItsLine) {
  for (const char* text : {"a\nb 'open", "a\nb \"$(x\"", "a\nb ${x", "a\nA=(1 2"})
    EXPECT_THAT(commandsOf(text), ElementsAre(HasSubstr("run.sh:2: a quote or parenthesis")))
        << text;
  EXPECT_THAT(commandsOf("a\nif b; then\nc\n"), ElementsAre(HasSubstr("'if' without 'fi'")));
  EXPECT_THAT(commandsOf("a\n)"), ElementsAre(HasSubstr("run.sh:2:")));
}

TEST(ShellVariables, ThoseOfTheTextArePutIn) {
  EXPECT_THAT(commandsOf("A='x y'\nf $A \"$A\" '$A' ${A}z"), ElementsAre("f|x|y|x y|$A|x|yz"));
  EXPECT_THAT(commandsOf("T=8; T+=0\nf --t=${T} $U ${U:-4} ${U-5} \"$U\""),
              ElementsAre("f|--t=80|<$U>|4|5|<$U>"));
  EXPECT_THAT(commandsOf("f ${P:=2} $P ${Q:=$P}; E=; f ${E:-1} \"${E-2}\" ${E:+3} ${P:+4}"),
              ElementsAre("f|2|2|2", "f|1||4"));
  EXPECT_THAT(commandsOf("f ${X%.*} ${X##*/} ${!X} ${X:?why}"),
              ElementsAre("f|<${X%.*}>|<${X##*/}>|<${!X}>|<${X:?why}>"));
  EXPECT_THAT(commandsOf("export A=1 B=\"2 3\"; declare -r C=$A; readonly D=4; local E=5\nf $A $B "
                         "$C$D$E"),
              ElementsAre("f|1|2|3|145"));
  EXPECT_THAT(commandsOf("A=1; unset A; read B <<< x; f \"$A\" $B"), ElementsAre("f||<$B>"));
  EXPECT_THAT(
      commandsOf("A=1; printf -v A 2; declare -A B=([A]=1 [x]=2); C=1; C[1]=2\nf $A ${B[x]} "
                 "$C"),
      ElementsAre("f|<$A>|<${B[x]}>|<${C[@]}>"));
  // Slurm's are not defaulted: under Slurm they are set.
  EXPECT_THAT(commandsOf("f ${SLURM_NNODES:-1}"), ElementsAre("f|<${SLURM_NNODES:-1}>"));
}

TEST(ShellVariables, ArraysKeepTheirWords) {
  EXPECT_THAT(commandsOf("L=(a 'b c' # not this\n)\nL+=(\"d e\")\nf ${L[@]} \"${L[@]}\" "
                         "\"${L[1]}\" ${#L[@]} \"${L[*]}\" $L"),
              ElementsAre("f|a|b|c|d|e|a|b c|d e|b c|3|a b c d e|a"));
  EXPECT_THAT(commandsOf("L=()\nf \"${L[@]}\" ${M[@]}"), ElementsAre("f|<${M[@]}>"));
}

TEST(ShellArithmetic, IsThatOfBash) {
  EXPECT_THAT(
      commandsOf("N=4 G=8\nf $((32*8)) $(( N * $G )) $((2+3*4-10/3)) $(((1+2)*3)) $((2**5))"),
      ElementsAre("f|256|32|11|9|32"));
  EXPECT_THAT(commandsOf("f $((X * 2)) $((1/0)) $((9223372036854775807+1))"),
              ElementsAre("f|<$((X * 2))>|<$((1/0))>|<$((9223372036854775807+1))>"));
  EXPECT_THAT(commandsOf("X=3; ((X++)); let \"Y=X*2\"; ((Y += 1)); f $X $Y"), ElementsAre("f|4|9"));
}

TEST(ShellFlow, ConditionsWithKnownVariablesAreDecided) {
  const auto chosen = [](const std::string& condition) {
    const Result<ShellRun> run =
        followed("X=y; N=8; E=\nif " + condition + "; then yes; else no; fi");
    if (!run.has_value()) return run.error().message();
    return run->decisions.empty() ? run->launches[0].words[0].text : "open";
  };
  for (const char* yes :
       {"[ \"$X\" = y ]", "[ $X == y ]", "[[ $X == y ]]", "[[ $X == ?* ]]", "[ $N -eq 8 ]",
        "[ $N -gt 7 ]", "[ $N -le 8 ]", "[ $N -ne 7 ]", "[ -z \"$E\" ]", "[ -n \"$X\" ]",
        "! [ $X = z ]", "[[ $X != z && $N -lt 9 ]]", "[[ ( $X == z || $X == y ) ]]",
        "[ $X = y -a $N = 8 ]", "test $X = y", "(( N > 4 ))", "[ $X = y ] && [ $N -ge 8 ]", "true"})
    EXPECT_EQ(chosen(yes), "yes") << yes;
  for (const char* no : {"[ \"$X\" = z ]", "[[ $X == z* ]]", "[ -n \"$E\" ]", "[ $N -lt 8 ]",
                         "[ -z $X ]", "(( N == 4 ))", "false", "[[ $X == z && -f a ]]"})
    EXPECT_EQ(chosen(no), "no") << no;
  for (const char* open : {"[ -f a ]", "[ \"$U\" = y ]", "[ -z \"$U\" ]", "grep -q a b",
                           "[[ $X =~ y ]]", "[ $U -gt 1 ]", "[[ $X == y && -f a ]]"})
    EXPECT_EQ(chosen(open), "open") << open;
}

TEST(ShellFlow, OpenConditionsAreTakenAsAsked) {
  const std::string text = "if [ $U = 1 ]; then a\nelif [ $U = 2 ]; then b\nelse c; fi";
  EXPECT_THAT(commandsOf(text, {}), ElementsAre("a"));
  EXPECT_THAT(commandsOf(text, {1, 0}), ElementsAre("b"));
  EXPECT_THAT(commandsOf(text, {1, 1}), ElementsAre("c"));
  EXPECT_EQ(followed(text, {1})->decisions[1].line, 2);
  EXPECT_THAT(commandsOf("[ -f x ] && a; [ -f x ] || b", {0, 0}), ElementsAre("a"));
  EXPECT_THAT(commandsOf("[ -f x ] && a; [ -f x ] || b", {1, 1}), ElementsAre("b"));
  EXPECT_THAT(commandsOf("[ -f x ] || exit 1\na", {1}), ElementsAre());
}

TEST(ShellFlow, CasesFollowKnownSubjects) {
  const std::string text = "case $X in a|b) one;; (c*) two ;; *) three; esac\nlast";
  EXPECT_THAT(commandsOf("X=b; " + text), ElementsAre("one", "last"));
  EXPECT_THAT(commandsOf("X=cd; " + text), ElementsAre("two", "last"));
  EXPECT_THAT(commandsOf("X=e; " + text), ElementsAre("three", "last"));
  EXPECT_THAT(commandsOf(text, {2}), ElementsAre("three", "last"));
}

TEST(ShellFlow, FunctionsAndLoopsAreFollowed) {
  EXPECT_THAT(commandsOf("f() { a $1 \"$@\"; }\nfunction g { b; return; c; }\nf x y; g; d"),
              ElementsAre("a|x|x|y", "b", "d"));
  EXPECT_THAT(commandsOf("for i in 1 2; do a $i; done"), ElementsAre("a|1", "a|2"));
  EXPECT_EQ(followed("\nfor i in 1 2; do a $i; done")->launches[0].loopLine, 2);
  EXPECT_EQ(followed("for i in 1; do a $i; done")->launches[0].loopLine, 0);
  EXPECT_THAT(commandsOf("N=0; while [ $N -lt 3 ]; do ((N++)); done; a $N"), ElementsAre("a|3"));
  EXPECT_THAT(commandsOf("(X=1; a $X); a $X; { X=2; a $X; }"), ElementsAre("a|1", "a|<$X>", "a|2"));
  EXPECT_THAT(commandsOf("f() { f; }\nf"), ElementsAre(HasSubstr("calls itself")));
  EXPECT_THAT(commandsOf("set -- x y; shift; a $1 $2 $#"), ElementsAre("a|y|<$2>|1"));
}

TEST(ShellFlow, LocalVariablesEndWithTheirFunction) {
  EXPECT_THAT(commandsOf("X=1; f() { local X=2 Y=3; a $X $Y; }; f; a $X $Y"),
              ElementsAre("a|2|3", "a|1|<$Y>"));
}

TEST(ShellFlow, QuotedCommandsAreFollowed) {
  EXPECT_THAT(commandsOf("C=\"a 'b c'\"; srun -N 2 sh -c \"$C $U\""),
              ElementsAre("srun|-N|2|sh|a|b c|<$U>"));
  EXPECT_THAT(
      commandsOf("A=(x 'y z'); T=1\ndocker run img bash -lc 'a $T \"$@\"' node \"${A[@]}\""),
      ElementsAre("docker|run|img|bash|a|1|x|y z"));
  EXPECT_THAT(commandsOf("C='a $T'; T='1 2'; eval $C"), ElementsAre("a|1|2"));
  // Quotes that end up inside of a value keep an open part whole.
  EXPECT_THAT(commandsOf("C=\"a $(x y)\"; bash -c \"$C\""), ElementsAre("bash|a|<$(x y)>"));
}

TEST(ShellFlow, HereDocumentsAreNoCommands) {
  EXPECT_THAT(commandsOf("cat > f <<EOF\na $X (\nEOF\nb <<-'E'\n\tc\n\tE\nd"),
              ElementsAre("cat", "b|c\n", "d"));
  // But one that is read into a variable is its value.
  EXPECT_THAT(commandsOf("X=1\nread -r -d '' C <<EOF\na \"$X\" \\\n  'b c' $U\nEOF\nsh -c \"$C\""),
              ElementsAre("sh|a|1|b c|<$U>"));
  EXPECT_THAT(commandsOf("read -d '' C <<'EOF'\na \"$1\"\nEOF\nbash -c \"$C\" x y"),
              ElementsAre("bash|a|y"));
}

// Each line doubles what is put in; each function calls the one before twice.
TEST(ShellFlow, WhatGrowsWithoutEndIsRefused) {
  std::string text = "A=aaaaaaaa\n";
  for (int i = 0; i < 64; ++i) text += "A=$A$A\n";
  EXPECT_THAT(commandsOf(text + "f $A"), ElementsAre(HasSubstr("does too much")));
  EXPECT_THAT(commandsOf("A=(a a a)\nwhile true; do A+=(\"${A[@]}\"); done\nf"),
              ElementsAre(HasSubstr("does too much")));
  EXPECT_THAT(
      commandsOf("for i in 1 2 3 4 5 6 7 8; do for j in 1 2 3 4 5 6 7 8; do for k in 1 2 3 "
                 "4 5 6 7 8; do for l in 1 2 3 4 5 6 7 8; do for m in 1 2 3 4 5 6 7 8; do :; "
                 "done; done; done; done; done"),
      ElementsAre(HasSubstr("does too much")));
  EXPECT_THAT(commandsOf(std::string(100000, '(')), ElementsAre(HasSubstr("run.sh:1:")));
  EXPECT_THAT(commandsOf("f " + std::string(100000, '"') + "$("), ElementsAre(HasSubstr("run.sh")));
  EXPECT_THAT(commandsOf("while true; do echo " + std::string(5000, 'a') + "; done"),
              ElementsAre(HasSubstr("does too much")));
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "${A:-";
  EXPECT_THAT(commandsOf("f " + deep + "1" + std::string(2000, '}')),
              ElementsAre(HasSubstr("run.sh:1:")));
}

// Whatever the bytes: commands, or a message with the file.
TEST(ShellFlow, DamagedTextIsFollowedOrRefused) {
  const std::string valid =
      "#!/bin/bash\nset -e\nA=${1:-8}; B=(x \"$A\" 'y z')\nfunction f() { local C=$1; a \"$@\" "
      "${C:+d}; }\nif [ \"$A\" -gt 4 ] && [[ $U == x* || -z $B ]]; then\n  f \"${B[@]}\"; else "
      "B+=($((A * 2)))\nfi\ncase $A in 1|2) b;; *) c ;; esac\nfor i in ${B[@]}; do (d $i) | e; "
      "done\nwhile [ $A -lt 12 ]; do ((A++)); done\ncat > x <<EOF\n$A\nEOF\nbash -c \"g $A "
      "\\\"$U\\\" "
      "'`h`'\" n \"${B[@]}\" > log 2>&1 &\neval \"$C\"; srun -N8 x <(y) {a,b}\n";
  EXPECT_GT(commandsOf(valid).size(), 4u);
  const auto check = [&](const std::string& text) {
    for (const std::vector<size_t>& choices : {std::vector<size_t>{}, {1, 0, 1}}) {
      const Result<ShellRun> run = followed(text, choices);
      EXPECT_TRUE(run.has_value() || run.error().message().starts_with("run.sh:")) << text;
    }
  };
  damageBytes(valid, "$$${}()[]\"\"''`\\;|&<>#!=+-*@ \n\tifdoneA1\xff", 6000, 6, check);
  damageLines(valid, 3, check);
  endEarly(valid, 1, check);
}

}  // namespace
}  // namespace trireme::codegen
