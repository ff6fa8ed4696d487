
# Copyright (c) 2026, the persistent-cache developers

# What pg_pcache status and verify print, as text and as JSON, of a pool in each state that a
# server leaves it in, beside one and without one.

use strict;
use warnings FATAL => 'all';

use JSON::PP qw(decode_json);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $none = new_node('none', mode => undef);
my ($rc, $out, $err) = pcache($none, 'status');
is($rc, 1, 'status without a directory: exit status');
like($err, qr/^pg_pcache: error: "pcache\.directory" is not set\n/, 'status without a directory: message');
set_directory($none, pool_root() . '/none');
($rc, $out, $err) = pcache($none, 'status');
is($rc, 1, 'status without a pool: exit status');
like($err, qr/^pg_pcache: error: could not open persistent cache pool ".*\/none\/pool": No such file or directory\n/, 'status without a pool: message');
($rc, $out, $err) = pcache($none, 'verify');
is($rc, 2, 'verify, mode off: exit status');
is($out, "next start: COLD: pcache.mode is off\n", 'verify, mode off: output');
set_mode($none, 'planned_restart');
is(verify_json($none)->{rc}, 2, 'verify without a pool: the start would make it');
ok(!-e pool_dir($none), 'verify without a pool: it does not make it');

my $node = new_node('main');
my $data = $node->data_dir;
my $pool = pool_file($node);

# An empty pool.
($rc, $out, $err) = pcache($node);
is($rc, 0, 'status is the default verb');
like($out, qr/^server: +not running\npool: +\Q$pool\E\nfile system: +tmpfs\n/, 'status: first lines');
like($out, qr/^state: +empty$/m, 'status: state');
like($out, qr/^mode: +none$/m, 'status: mode');
like($out, qr/^saved: +never$/m, 'status: never saved');
like($out, qr/^saved checkpoint: +none$/m, 'status: no checkpoint');
my $verdict = verify_json($node);
is($verdict->{rc}, 2, 'verify of an empty pool: exit status');
is($verdict->{reason}, 'new', 'verify of an empty pool: reason');

# A live server.
$node->start;
load_data($node);
my $status = status_json($node);
is($status->{rc}, 0, 'status of a live server: exit status');
ok($status->{server_running}, 'status of a live server: it runs');
is($status->{server_pid}, $node->{_pid}, 'status of a live server: its PID');
is($status->{state}, 'dirty', 'status of a live server: state');
is($status->{mode}, 'planned_restart', 'status of a live server: mode');
is($status->{capacity}, 4096, 'status of a live server: capacity');
is($status->{slots_used}, 4096, 'status of a live server: slots');
is($status->{pool}, $pool, 'status of a live server: pool');
is($status->{system_identifier},
	$node->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()'),
	'status of a live server: system identifier');
($rc, $out, $err) = pcache($node, 'verify');
is($rc, 1, 'verify of a live server: exit status');
like($err, qr/^pg_pcache: error: cluster must be shut down\n.*detail: A server with PID \d+ is running/,
	'verify of a live server: message');

# Down.
my $valid = warm_up($node);
$node->stop;
my @before = ((stat $pool)[7, 9], slurp_file($pool));
$status = status_json($node);
ok(!$status->{server_running}, 'status after a clean stop: not running');
is($status->{server_pid}, undef, 'status after a clean stop: no PID');
is($status->{state}, 'clean', 'status after a clean stop: state');
cmp_ok($status->{saved_pages}, '>=', 0.999 * $valid, 'status after a clean stop: saved pages');
like($status->{saved}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/, 'status after a clean stop: when');
my ($control) = run_command([ 'pg_controldata', $data ]);
my ($checkpoint) = $control =~ /^Latest checkpoint location:\s+(\S+)/m;
is($status->{saved_checkpoint}{location}, $checkpoint, 'status after a clean stop: checkpoint');
is($status->{min_recovery_point}, undef, 'status of a primary: no minimum recovery point');
ok($status->{superblock_intact} && $status->{superblock_copy_intact}, 'status: superblocks are intact');

($rc, $out, $err) = pcache($node, 'verify');
is($rc, 0, 'verify after a clean stop: exit status');
is($err, '', 'verify after a clean stop: nothing on stderr');
like($out, qr/^next start: WARM, $status->{saved_pages} of $status->{saved_pages} pages\n\nslots: +4096\nkept: +$status->{saved_pages}\nfree: +\d+\n/,
	'verify after a clean stop: output');
($rc, $out, $err) = pcache($node, 'verify', '--progress');
like($err, qr/^\d+\/\d+ MB \(100%\) done$/m, 'verify --progress');
$verdict = verify_json($node);
is($verdict->{next_start}, 'warm', 'verify --json: next_start');
ok(exists $verdict->{reason} && !defined $verdict->{reason}, 'verify --json: no reason');
is($verdict->{pages}{kept} + $verdict->{pages}{free}, 4096, 'verify --json: all slots counted');

# It foretells the number that the server keeps.
my $offset = log_offset($node);
is_deeply([ (stat $pool)[7, 9], slurp_file($pool) ],
	\@before, 'status and verify have changed nothing');
$node->start;
is(start_outcome($node, $offset)->{kept}, $verdict->{pages}{kept},
	'the server keeps as many pages as verify said');
$node->stop;

# --directory
is((pcache($node, 'status', '--directory' => pool_dir($node)))[0], 0, 'status --directory');
is((pcache($node, 'verify', '--directory' => pool_dir($node)))[0], 0, 'verify --directory');
($rc, $out, $err) = pcache($node, 'status', '--directory' => pool_root() . '/none');
is($rc, 1, 'status --directory: nothing there');
($rc, $out, $err) = pcache($node, 'verify', '--directory' => pool_root() . '/none');
is($rc, 1, 'verify --directory: nothing there');
($rc, $out, $err) = pcache($node, 'verify', '--directory' => 'relative');
is($rc, 1, 'verify --directory: relative');
like($err, qr/must be an absolute path/, 'verify --directory: relative: message');

# With an error in its configuration the server does not start.
my $auto = slurp_file("$data/postgresql.auto.conf");
append_to_file("$data/postgresql.auto.conf", "no_such_setting = 1\n");
($rc, $out, $err) = pcache($node, 'verify');
is($rc, 1, 'verify, wrong configuration: exit status');
like($err, qr/unrecognized configuration parameter "no_such_setting".*error: the server does not start with the configuration of the cluster\n/s,
	'verify, wrong configuration: message');
truncate "$data/postgresql.auto.conf", length $auto;

# --config-file
append_to_file("$data/elsewhere.conf", slurp_file("$data/postgresql.conf"));
rename "$data/postgresql.conf", "$data/postgresql.conf.away" or die $!;
($rc, $out, $err) = pcache($node, 'verify');
is($rc, 1, 'no configuration file: the place of the pool is not known');
like($err, qr/error: could not find out where the pool is: the server's configuration could not be read\n/, 'no configuration file: message');
($rc, $out, $err) = pcache($node, 'verify', '--directory' => pool_dir($node));
is($rc, 3, 'no configuration file, --directory: not known');
like($out, qr/^next start: UNKNOWN: the server's configuration could not be read$/m, 'no configuration file, --directory: output');
$verdict = verify_json($node, '--directory' => pool_dir($node));
is($verdict->{next_start}, 'unknown', 'no configuration file, --directory: next_start');
is($verdict->{reason}, 'configuration', 'no configuration file, --directory: reason');
is((pcache($node, 'verify', '--config-file' => "$data/elsewhere.conf"))[0], 0, '--config-file');

# Directories with the configuration, as Debian's packages have them.
{
	local %ENV = %ENV;
	my $etc = PostgreSQL::Test::Utils::tempdir();
	my $conf = "$etc/18/main";
	my $run = sub {
		my ($exit, $name, $pattern, @args) = @_;
		my ($stdout, $stderr) = run_command([ 'pg_pcache', @args ]);

		is($? >> 8, $exit, "$name: exit status");
		like($stderr, $pattern, "$name: message") if defined $pattern;
		return $stdout;
	};
	my $using = qr/^pg_pcache: using data directory "\Q$data\E" of the configuration in "\Q$conf\E"$/;

	$ENV{PG_CLUSTER_CONF_ROOT} = $etc;
	delete $ENV{PGDATA};
	$run->(1, 'no cluster at all', qr/^pg_pcache: error: no data directory specified\n/, 'verify');
	mkdir $_ or die $! for "$etc/17", "$etc/17/main", "$etc/18", "$etc/18/empty", $conf;
	append_to_file("$etc/17/main/postgresql.conf", "data_directory = '$data'\n");
	$run->(1, 'no cluster of this version', qr/^pg_pcache: error: no data directory specified\n/, 'verify');
	append_to_file("$conf/postgresql.conf", slurp_file("$data/elsewhere.conf") . "\ndata_directory = '$data'\n");

	like($run->(0, 'the only cluster', $using, 'verify'), qr/^next start: WARM/, 'the only cluster: warm');
	like($run->(0, 'the only cluster, status', $using), qr/^pool: +\Q$pool\E$/m, 'the only cluster, status: its pool');
	$run->(0, '-D is a configuration directory', qr/^$/, 'verify', '-D' => $conf);
	$run->(1, '-D is an empty directory', qr/pg_control/, 'verify', '-D' => "$etc/18/empty");
	$run->(1, '--config-file counts more', qr/could not read/, 'verify', '-D' => $data, '--config-file' => "$etc/none.conf");
	{
		local $ENV{PGDATA} = $conf;
		$run->(0, 'PGDATA is a configuration directory', qr/^$/, 'verify');
		local $ENV{PGDATA} = "$etc/18/empty";
		$run->(1, 'PGDATA counts more than what can be found', qr/pg_control/, 'verify');
	}

	# what the server was last started with
	my $opts = slurp_file("$data/postmaster.opts");
	my $started = sub {
		unlink "$data/postmaster.opts";
		append_to_file("$data/postmaster.opts", join(' ', '/usr/bin/postgres', map { qq{"$_"} } @_) . "\n");
	};
	for my $case (
		[ 0, '-c', '-D', $data, '-c', "config_file=$conf/postgresql.conf" ],
		[ 0, '-c in one word', '-D', $data, "-cconfig_file=$conf/postgresql.conf", '-c', 'port=1' ],
		[ 0, '--config-file', "--config-file=$conf/postgresql.conf" ],
		[ 0, '-D', '-D', $conf ],
		[ 1, 'relative', '-D', $data, '-c', 'config_file=postgresql.conf' ],
		[ 1, 'a missing file', '-D', $data, '-c', "config_file=$etc/none.conf" ],
		[ 1, 'nothing', '-i' ],
		[ 1, 'a word that lacks its value', '-c' ])
	{
		my ($exit, $name, @command) = @$case;

		$started->(@command);
		$run->($exit, "last started with $name", $exit == 0 ? qr/^$/ : undef, 'verify', '-D' => $data);
	}
	append_to_file("$etc/other.conf", slurp_file("$data/elsewhere.conf") . "\ndata_directory = '" . $none->data_dir . "'\n");
	$started->('-c', "config_file=$etc/other.conf");
	$run->(1, 'last started with the configuration of another cluster', undef, 'verify', '-D' => $data);
	$started->('-D', $none->data_dir);
	$run->(1, 'a copy, together with postmaster.opts', undef, 'verify', '-D' => $data);
	unlink "$data/postmaster.opts";
	append_to_file("$data/postmaster.opts", $_), $run->(1, 'damaged postmaster.opts', undef, 'verify', '-D' => $data)
	  for '', ' "', '"-c" "', ' "-c" "config_file=', "\0";

	# by a server
	unlink "$data/postmaster.opts";
	command_ok([ 'pg_ctl', '-w', '-D' => $data, '-l' => $node->logfile, '-o' => "-c config_file=$conf/postgresql.conf", 'start' ],
		'a server with its configuration elsewhere: start');
	$run->(1, 'a server with its configuration elsewhere, running', qr/cluster must be shut down/, 'verify', '-D' => $data);
	command_ok([ 'pg_ctl', '-w', '-D' => $data, 'stop' ], 'a server with its configuration elsewhere: stop');
	$run->(0, 'a server with its configuration elsewhere, stopped', qr/^$/, 'verify', '-D' => $data);
	unlink "$data/postmaster.opts";
	append_to_file("$data/postmaster.opts", $opts);

	mkdir "$etc/18/second";
	append_to_file("$etc/18/second/postgresql.conf", 'nonsense');
	$run->(1, 'two clusters', qr/^pg_pcache: error: no data directory specified\npg_pcache: detail: There are several clusters: "18\/(?:main|second)", "18\/(?:main|second)"\.\npg_pcache: hint: Choose one of them with --cluster, for example 18\/main\.$/, 'verify');
	$run->(1, 'a configuration that cannot be read', qr/error: could not find the data directory of the configuration in "\Q$etc\E\/18\/second"/, 'verify', '-D' => "$etc/18/second");
}
rename "$data/postgresql.conf.away", "$data/postgresql.conf" or die $!;

# Damage.
damage_superblock($pool, 'crc', 0);
$status = status_json($node);
ok(!$status->{superblock_intact}, 'status: the first superblock is damaged');
ok($status->{superblock_copy_intact}, 'status: the copy is intact');
is($status->{state}, 'clean', 'status: the copy is shown');
damage_superblock($pool, 'magic', COPY_OFFSET);
($rc, $out, $err) = pcache($node, 'status');
is($rc, 1, 'status, both superblocks damaged: exit status');
like($err, qr/^pg_pcache: error: both superblocks of persistent cache pool ".*" are damaged\n.*detail: The first one: checksum is wrong\.  The copy: magic number is wrong\.\n.*hint: Both superblocks of file ".*" are damaged, so a start makes an empty pool of it\./,
	'status, both superblocks damaged: message');
damage_superblock($pool, 'crc', 0);
damage_superblock($pool, 'magic', COPY_OFFSET);
patch_superblock($pool, format_version => 7);
($rc, $out, $err) = pcache($node, 'status');
is($rc, 0, 'status of another format version: exit status');
like($out, qr/^format version: +7$/m, 'status of another format version: the version');
unlike($out, qr/^capacity:/m, 'status of another format version: nothing beyond the frozen part');
my $saved_at = read_superblock($pool)->{saved_at};
patch_superblock($pool, format_version => 3, saved_at => 2**62, state => 77, mode => 88);
($rc, $out, $err) = pcache($node, 'status', '--json');
is($rc, 0, 'status of nonsense: exit status');
is(eval { decode_json($out)->{state} }, 'unknown', 'status of nonsense: valid JSON');
patch_superblock($pool, state => STATE_CLEAN, mode => 1, saved_at => $saved_at);

# A control file of somebody else.
my $file = "$data/global/pg_control";
my $bytes = slurp_file($file);
write_bytes($file, 100, chr(ord(substr $bytes, 100, 1) ^ 1));
for my $verb ([ 'verify' ], [ 'init', '--force', '--size' => '1MB' ])
{
	($rc, $out, $err) = pcache($node, @$verb);
	is($rc, 1, "$verb->[0], damaged pg_control: exit status");
	like($err, qr/error: pg_control CRC value is incorrect\n/, "$verb->[0], damaged pg_control: message");
}
write_bytes($file, 0, $bytes);
is(verify_json($node)->{rc}, 0, 'mended: warm');

done_testing();
