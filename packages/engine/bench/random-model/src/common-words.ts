/**
 * The commonest words of English prose and software documentation, most frequent first, lower case. The random-weights
 * model trains its vocabulary on them, so that it needs no text beside the program. Counted over freely available
 * manuals (each project counts once, so that no single vocabulary rules), with the basic words of general English
 * mixed in below the first three hundred.
 */
export const COMMON_WORDS: readonly string[] = `
the to a and is of in for this with be it that or are as if by not on can use from an you will all when which at only
https used file have but example no new using one any version name set also may same string do more code has see first
other your number so default function these each like value then time without type work some make text does line
should than object into its must following where there true after they under two get them output list option files we
add need note data source support before return was i user such how start run error different path end options up
command js want build instead what method values change returns current case while available const most given non test
both been mode above over node require key single here uses based module find argument because result order works
between open back out information system called license install last size just way false main about would read below
found include format check their call input otherwise package useful model another http since specified part means
next defined create lines copy already contains always item write possible even section directory io many long npm
optional either supported original document library names standard context match search multiple full second through
usage now specific log versions examples functions however message directly required form added process provided right
buffer server whether within style changes commands level character still being simple methods cannot via
automatically script import help characters prefix including length empty class docs special console documentation
program free top per arguments let memory windows supports zero those results html could variable window table
previous avoid map my space tools types requires running local language our try details index itself head well water
every runs keys city count existing made river once done three mountain sequence reference fast country state present
common house very matches similar mother systems re instance father remove thus matching woman pattern syntax provides
women items normal position men public prompt written girl included setting tree boy objects later allows friend valid
additional sure death array software request love token access flag face own load created eye feature implementation
performance eyes currently range global heart were least models blood keep cache perl voice specify behavior passed
story distribution split times book features print null music show provide environment song large unless needed film
general md parse game pass errors might player users point application season off custom starting club dev changed
python league inside modify place won status interface something king except handle modules queen writing several
across president contain during properties minister strings block generated government base takes makes court terms
making until police insert contents separate war containing built cases army notice rather else battle various control
too soldier modified removed please peace allow config apply church json parameter ms god encoding shows put century
close id left ancient content boolean tokens late starts whole longer born cursor define none died enabled less target
young go sets take great delete shared bit green enable returned display yellow messages release convert brown page
filename event silver generate internal know gold tests actions host iron give often multi stone replace small much
wood mapping processing date glass actually plugin project plant max property things forest includes against look
animal bash numbers few bird parameters cause further fish world compiled documents dog update variables info cat
maximum complete query horse en calls ignored food execute requests configuration bread bytes unix fixed milk edit
settings extra meat sub adding conditions fruit compatible related appear sugar corresponding never defaults salt
expected follow problem coffee root generation header tea short core better wine binary old scripts oil exists refer
runtime gas allowed real anything coal external api undefined energy installed started word electric register save
history car location expression move train hello compile javascript ship report terminal visual boat around nothing
blob plane side ignore group road needs copies entry street accept faster calling bridge again width yet station equal
actual shell airport structure higher issues market reuse follows stop shop words effect able price exception address
correct money larger parser share bank clear manual missing company executed explicitly break industry auto changing
select farm testing future paths land down raw dynamic island tag limit security sea mechanism normally therefore
ocean patterns issue ones lake third doc step coast hit good benchmark north editing response reading south shown
workflows distributed east exit cached field west exist total installation northern debug compatibility equivalent
southern entries self inference eastern applies certain var western min difference author central spec term title
capital lower turn lib town column though updated village throw design comment population distribute limited depends
french meaning cost disable german four invalid applications spanish loaded together whose european append branch
parsing american url latency stream british overhead leading necessary indian specifies handling parts africa setup
args recommended asia events remain engine europe session rights web america strict machine batch london override
formats blocks paris creates consider mark berlin compiler exact execution germany fails listed flags france best
dependencies programs england stored considered relative italy compare received usually spain others problems high
japan libraries creating description india buffers disabled enter russia completion plus appropriate canada bin
previously permission australia figure lists resulting january tool operation comparison february becomes operator
working march likely mean continue april throughput adds net june indicates send associated july rules backend
callback august hash displayed algorithm september latest reset final october stack color store november linux layer
specification december ensure caching people monday fail known remains tuesday according async screen wednesday assert
regular produce thursday mappings references kind friday definition prevent modifications saturday implement important
addition sunday purpose ways retrieved morning integer named image evening reason probably exactly night fit choose
quality today really basic particular tomorrow align enough causes yesterday pull medium simply week executable
evaluate low month manually tell int minute development vs combined temperature gives overlap why degree pre who
schema metre warning typed white kilometre fix sequences efficient mile operations separated prefill pound accepts
master opt science extend byte compute scientist identical dir become theory classes escape loop student aware
metadata questions teacher due question win professor constructor switch debugging doctor de href loading hospital
closed immediately licensed patient sometimes retrieval export disease reduce filter comes medicine trace minimum
doing health plain cmd happens cell depending sections typing gene overview matched minimal brain checks wrong
typically earth spaces bug inserted moon double correctly active planet big storage steps rock although port answer
fire designed nested seconds air gets codes skip wind client approach implemented rain decode benchmarks unknown snow
looks utf attributes summer policy enables packages winter relevant configure err spring speed properly followed
autumn prior child echo million device foundation join billion menu entire smaller thousand directories building cd
hundred subject priority tags seven finally params along eight recent req mouse nine validation expect perform twelve
rate chunk upon twenty omitted deep handler quarter vimrc converted app became str await earlier began older
conversion browser brought initial having differences came choice individual thing carried force attention passing
draw eval proxy highlighting drive jump native components eat deleted selected rest fell unique modification post felt
keyword view optimized fight replaced chat easy fly failed ordering prefixes gave knowledge wait replacement grew
editor fully cli grow represents download complex hear parent static described heard attribute highlight regardless
held plugins merge management hope extension getting comments knew languages trailing explicit laid link domain scope
lay safe readable height led applied remaining did lie flat authors regex lived handles yes home living lookup
production indent lose us indicate catch meet char invoked formatting met queries tasks strategy paid selection env
network pay come component headers play nodes indicating attempt ride namespace intended connection rise amount
handled instruct rose processed unicode far said supplied summary going sat void preserve blank saw checking taken
guide seem definitions platform sort sing automatic template compared sit developer fields os sold consistent matter
database spoke resolve tested clone stand res detect obj stay everything timeout outside stood repeat stringify
failure talk saved serving independent teach placed service background told little subsequent alternative took differ
executing architecture travel generic published beyond visit seen updates parsed watch major private requirements went
alpha absolute especially toward promise beginning positions perhaps ends improve undo ago groups say pointer reported
init optimization scale forward extended operating lost copying nodejs statement shift patch encoded slow evaluation
git elements assume removes compilation resources prefer avoids negative parallel defines caches extends draft goes
configured backslash signal stable appears computation among stuff utility meta computer refers diff fine element
mozilla restore sent mail encode whatever contained direct begin opened sizes mapped projects reports longest
completely happen prompts comma body expand unlike center maps middle states limitation searches reverse legacy layers
hardware specifically expressions average collection accepted repository leave limitations decimal trying literal func
deprecated magic combination greater generating keywords baseline visible receive unchanged cross front had reasoning
sharing covered pages task ok neostandard upper controlled reordering alias prototype sys protocol recognized granted
significant think efficiency float hidden socket me effective ask action functionality endif wide idea sensitive
colors sample levels thread points wikipedia depth publish microsoft introduction wrap mentioned hex sorted offset
reserved exe optionally contexts dictionary hard searching site internally fs lot noet bench label concurrent threads
marks dataset dependency graph occurs verbose released queue interfaces releases analysis party workloads natural
links notices generally norl giving instances produces completed repeated preferred scheme away inc filetype permitted
caused effectively yourself extensions record places purposes substantial augmented copied specifying detailed benefit
affect declare whitespace mostly drop entirely startup keeps legal quote determine representation cmake opts
registered charge remote leaving accessed finished letter permissions preceding reduces near treated reasons ranges
wiki easily decide solution huggingface exports builds exceptions symbol positive abstract processes stdout
compression closing easier performs expr applicable stores bugs silent shall throws configurations virtual advanced
assign interpreted twice notation official quotes detail push strategies improves ordered removing backwards opening
treat stderr cpan sync matters separator moved bad returning clean early dist minor member scheduling detected
possibly tells vector quick trigger greedy construction contributor workflow remember formatted eviction columns li
overlapping click additionally separately appended prints google quite fallback representing arbitrary he emitted
warnings ready schemas verbatim moving frequency differently counts focus alternatively cut lowercase contributors
modes finds wish abort retrieve achieve sign gpu swap targets chunks whenever five modern notes pi terminated validate
frequently holder breaks respectively communication responsible slower experimental person identifier ai locale
portion samples press logging recently defining pairs framework dot detection modifying ever random password th
documented chapter logic looking anyway digits offer helps past decoding duplicate sampled forms dict redistribute
underlying represent translation negligible pipeline highlighted contributions checked produced receives util coverage
temporary devices wrapped generates metrics partial regexp deal accuracy depend thrown days contact responses workload
job sense stage stops identify got delay interactive hand describes len declared exclude suitable temp pretty kept
careful programming lead behind unit signature ending derived row ietf transparent converts moment builtin container
platforms internals listen permit trie english concurrency increases synchronous providing impact addresses localhost
situation scroll area taking account fall printed maybe makefile highest embedding complicated dynamically
milliseconds instructions inputs maintaining keeping evaluated gains constructs improvements paste affected benefits
moves operates operators terminate skipped finding practice finish generator archive keyboard proper chain region
restrictions somewhere hint downloads arrays email team sources resource compiling standalone warmup exported primary
limits slightly year manager reused substitute installing environments potentially marked scalar improving square
brackets condition differs replaces measure fraction proto maintain implements law extract usual payload secure
redundant confirm requested learn registers recognize human consecutive increase creation raise initialization
acceptance progress pipelining streams browsers colon implementations vary writes appends metric fewer quit verify
triggered accessible achieves assigned asynchronous sessions oracle obtained patent optimal subset discussion
initialize fixes reducing layout storing deleting grep bound describe reusable helper edited handlers intermediate
wildcards translate introduced channel pressing readonly threshold express overall typescript commonly timestamp
apache declaration family offline pending exclusive diverse profiling breaking iteration direction children welcome
inserting complexity assuming excluding streaming slice icon causing outputs hook experiments computed ref commit
opaque displays hostname measured math unmodified desired tuple significantly fold maintainers serve replacing saving
anonymous quickly unexpected light connect digit course lightweight hints enabling tries zip tabs transfer serialize
encodings members unfortunately rename claims integration suffix printf compressed sending bits media care improvement
approximate translated stated die diagnostics review num recommend sensitivity consists embedded alignment phase
locally understand similarity capabilities reads warn paragraph capacity worker omit latin param nor mkdir overrides
behaviour semantics shorter sampling beta gen newer cookie uppercase supporting truncated half synthetic wrapper kinds
preserving letters grant falls situations constant showing optimize numeric expanded locality offers statistics
newline meant distributions del portions kernel adjust profile tar ordinary median pool bottom reduced introduce
demonstrates seed literally exiting community symbols fact clause contrast invoke floating assumes crash gain hide
hierarchy organization fork successfully stdin statements entering braces engines satisfy maintains excluded effort
cover docker overwrite agent clipboard neither commercial vulnerability pipe bool internet track maintained day
conversation soon reply entered study almost expose pure loads parses bracket contributing baselines subclass raised
wildcard deletes disk folding sponsors logical reflect builder someone username reporting obtain controls despite hits
continuation risk servers series discussed numbered allowing candidate potential passes hold freedom varying lesser
font explained inspect vertical listing speculative construct combining escaped shape structured repo alternate rule
pair putting infinity modifier strip art unused comparisons formatter walk behave ensures exhibit resolved lowest
prominent db advantage templates rank expects interpreter restriction overridden covers flow act served typical sum
accordingly conflict learning restored determined material recomputation parentheses man iso dots strongly backward
experience compress anywhere prepend termination disclaimer sorting reach datasets decision recipients illustrates
sends product duration paper concerns encountered fname factory combine indicated years guarantee controller located
triggers mechanisms serialized mix filtering wrapping linked accurate red assumed folder regions fill splitting mixed
grammar updating failing parties physical contribute university flash forget destination sleep relying backup
incorrect alone recursively menus images clock branches effects convey optimizations waiting apple reasonable pressure
button backslashes highly online frame requirement signed requiring aborted critical overlaps entity aggregate
developers popular saying dialog inline costs yaml affects stands widely switching architectures reduction minimize
indentation customize linking themselves obtaining ext distance inner ensuring explanation manages onto demonstrate
records hop callbacks precedence fastest chosen guaranteed solely leaves success constants transform sequential pick
glob bring latter derivative searched positional comparing retrieves occur unsupported protection wanted dispatch kv
slash incompatible route traversal attach assets pkg quantization shorthand writable newly charset suppress extremely
everyone applying displaying mod carry rates increasing octal identifiers batched sentence specifications age
converting yields timer universal feedback implied resolution turns autoload disables products evaluates raises
opportunities registry emit silently broken convenience avoiding tiny expanding jinja lang obvious counter cold dark
flush supply enum horizontal macros supposed protect quoted detects recording semver leaf printing dump exits adjacent
measures traditional recovery secondary round lots asked avg agreement reaches preserves underscore boundary primarily
terminals tokenizer category studio says inherit engineering trouble strong versus performed conflicts knows debugger
impossible vectors indexes lets compliance extent splits renamed difficult emits executes dos alternatives marker
labels goal caption observation corpus preview role yielding exhaustive recency translations integers merged ambiguous
robustness meaningful idle reached overwritten distinct inclusive interest revised live directive mind holds mask frac
simultaneously sell suggestions dead dual collect explains initially implies practical computing suppose naming
studies stays rely decoded conference allocated whom driver sourced matrix star caller routes formatters hour div
endpoint efficiently filenames lambda reusing brief simpler exec redirect duplication propose exposes adjusted waits
turned contextual expansion repeating measurement guess maximize trusted fresh prepended similarly stages incoming
evidence dotted box motif helpful cycle indexing ui serializer chars nice helpers elsewhere respect international
pieces enforce answers folds texts stopped scan flexible ruby repeatedly passages segment captures yarn enhanced
weights compilers blue grouped collective trust simplified vulnerabilities attached restricted ignoring algorithms
evaluating inspired consume downstream referenced serialization validator deploy redo dependent school demand
modifiers black dirname slashes breakdown miss resolves aliases regarding website percent asking safety intel achieved
login tried toolbar resident fetch structures addr research pos distinguish personal ten authorization evicted cluster
loss misc globals declaring confusion gpt instruction occurred rare yank skipping endian determines deployment router
secret calculate reorders toc imports restrict selecting arrow particularly prevents backspace cloud wrote inserts
understanding wall iterations dedicated bind room mandatory mainly closest clusters capability freed render closes
shares accessing span experiment malformed machines recursive owner upgrade compares locate bare terminates grants
heavy segments services locations puts claim anyone orders outer untrusted quant retain thanks recipient neural
pipelined tables bottleneck failures ws compiles conversations ability mismatch tracking thought explain cleared
contiguous recover embeddings mjs unsigned multimodal begins seems saves kill suite scrolling globally circular
ranking filesystem oss allocation volume integrated initialized dropped scenarios approximation prefixed imported
struct css arabic power insensitive asynchronously sufficient spell directives assignment fits floor customer
increment weight tracks blog binaries incomplete gnu advances styles nesting upstream approaches involved apr lengths
artistic retained reuses enhance publication spelling stating bundle shutdown selective connections intro manner
placement unlikely technical hence zh answering varies stats primitive royalty precision binding maintainer motion
guides hot thinking article behaves titles scoped piece preset excludes precise delimiter estimate opens procedure
scheduler middleware discussions guidelines browse sweep trade life counted exchange basis deepseek introduces
reordered remembered maintenance standards declarations dll foreground escapes sep modifies reproduce contribution
indexed belongs graphs digraph carefully java retry possibility indented connected std confusing jumps transport
hexadecimal essentially invariant drawing designated indenting preprint vision persistent passage retriever clearly
assertion prop degradation permutations duplicates merging unnamed termcap peer cookies typeof dumper china persons
extracted respective represented executables publicly huang reveals chinese ubuntu logs improved hooks shortcut
abbreviation liability
`
  .trim()
  .split(/\s+/);
