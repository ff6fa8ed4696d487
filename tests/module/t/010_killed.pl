
# Copyright (c) 2026, the persistent-cache developers

# Mode always: what was cached stays when processes are killed, and only what is proved to
# be right.

use strict;
use warnings FATAL => 'all';

use JSON::PP;
use PCacheKilled;
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = module_node('main', mode => 'always', standby => 1,
	conf => "restart_after_crash = on\nwal_keep_size = 256MB\n");
my $data = $node->data_dir;
my ($offset, $outcome, $right);

# Clean pages, some that are dirty, and some that were logged since the checkpoint and are
# written.
sub work
{
	change_tables($node);
	warm_pages($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', q{UPDATE t_kinds SET p = p + point(1, 0) WHERE id % 50 = 3});
	return;
}

# What pg_pcache says of a node that is down, if there is the program.
sub foretold
{
	my ($result) = run_command([ 'pg_pcache', 'verify', '--json', '-D', $data ]);
	return decode_json($result);
}

# A test: the server was killed, and the start keeps what it can, which was foretold.
# Nothing that was kept is wrong.  Returns the outcome.
sub start_after_kill
{
	my ($name, %params) = @_;
	my $foretold = foretold();
	my $outcome = start_and_compare($node, $name, %params);

	is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason} // $outcome->{log});
	like($outcome->{log}, qr/persistent cache: the server was killed; what it left was judged in/, "$name: the log says so");
	cmp_ok($outcome->{kept}, '>', $params{at_least} // 300, "$name: kept $outcome->{kept} pages");
	is($foretold->{next_start}, 'warm', "$name: foretold");
	is($foretold->{pages}{kept}, $outcome->{kept}, "$name: as many pages were foretold");
	is($foretold->{pages}{lc s/ /_/gr}, $outcome->{dropped}{$_}, "$name: and $outcome->{dropped}{$_} dropped, $_")
	  for sort keys %{ $outcome->{dropped} };
	return $outcome;
}

# A test: the server was killed, and then something was done.  The start is cold.
sub cold_after_work
{
	my ($name, $reason, $code, %params) = @_;

	work();
	# it says now and then how far WAL goes
	sleep 1;
	kill_seen($node);
	$code->();
	cold_start($node, $reason, $name, %params);
	return;
}

$node->start;
unlike(slurp_file($node->logfile), qr/used as "planned_restart"/, 'mode always is what it says');
load_tables($node);

# ---------------------------------------------------------------- foretold
work();
{
	my ($json) = run_command([ 'pg_pcache', 'check', '--json', '-D', $data ]);
	my $killed = decode_json($json)->{killed};
	my ($text) = run_command([ 'pg_pcache', 'check', '-D', $data ]);

	is($killed->{next_start}, 'warm', 'check: warm if it was killed now');
	cmp_ok($killed->{pages}{$_}, '>', 0, "check: pages, $_") for qw(kept dirty not_a_main_fork unlogged);
	like($text, qr/^if it is killed now: $killed->{pages}{kept} of \d+ cached pages will be kept$/m, 'check: the same as text');
	kill_seen($node);
	$outcome = start_after_kill('as check has foretold');
	cmp_ok(abs($outcome->{kept} - $killed->{pages}{kept}), '<=', 20, "check: kept $outcome->{kept} pages, $killed->{pages}{kept} were foretold");
}

# Where the settings allow no pool, none is kept, whatever the pool says.
SKIP:
{
	my ($method) = run_command([ 'postgres', '-D' => $data, '-c' => 'io_method=io_uring', '-C' => 'io_method' ]);

	skip 'this server has no io_uring', 4 if $method ne 'io_uring';
	$node->append_conf('postgresql.conf', "io_method = io_uring\ndebug_io_direct = data");
	my ($rc, $text) = pcache($node, 'check');
	is($rc, 2, 'check, io_uring and direct I/O from the next start on: cold');
	like($text, qr/^next start: COLD: /, '... which it says');
	unlike($text, qr/if it is killed now/, '... and nothing of a killed server');
	is(verb_json($node, 'check')->{killed}, undef, '... nor in JSON');
	$node->adjust_conf('postgresql.conf', $_, undef) for 'io_method', 'debug_io_direct';
}

# ---------------------------------------------------------------- killed
for my $k (1 .. 3)
{
	work();
	kill_seen($node);
	$outcome = start_after_kill("kill -9, $k");
	cmp_ok($outcome->{dropped}{$_} // 0, '>', 0, "kill -9, $k: dropped, $_") for 'dirty', 'not a main fork', 'unlogged';
	$node->safe_psql('postgres', q{INSERT INTO t_unlogged SELECT i, md5(i::text) FROM generate_series(1, 5000) i});
}
warm_restart($node, 'a clean stop in mode always');

# a page that was logged since the checkpoint and is clean
work();
$node->safe_psql('postgres', q{SELECT pg_prewarm('t_heap'), pg_prewarm('t_toast')});
$node->safe_psql('postgres', q{CREATE TABLE t_many AS SELECT i, repeat('x', 500) FROM generate_series(1, 60000) i});
$node->safe_psql('postgres', q{SELECT count(*) FROM t_kinds; SELECT pg_prewarm('t_kinds')});
kill_seen($node);
$outcome = start_after_kill('younger pages', at_least => 0);
cmp_ok($outcome->{dropped}{'younger than redo'} // 0, '>', 0, 'pages younger than redo are dropped');
$node->safe_psql('postgres', 'DROP TABLE t_many');

work();
wait_for_sighting($node);
$node->stop('immediate');
start_after_kill('an immediate stop');

# fewer buffers than the server had that was killed, and more
for my $buffers ('16MB', '40MB', '24MB')
{
	work();
	kill_seen($node);
	$node->append_conf('postgresql.conf', "shared_buffers = $buffers");
	start_after_kill("$buffers of buffers after a kill");
}

# ---------------------------------------------------------------- a pool that has lost a part
# Half of a page is zeros afterwards, in a slot that the headers still have.
for my $case ([ 'cut off in a block', 'max', sub { truncate pool_file($node), $_[0] + 4096 or die } ],
	[ 'a bad block that was cleared', 'min', sub {
			my $entry = pack 'QL', $_[0] + 4096, 4096;

			write_bytes(pool_file($node), 12288, $entry . pack('L', crc32c($entry)));
			is(verb_json($node, 'rebuild')->{still_bad_bytes}, 0, 'a bad block that was cleared: rebuild');
		} ])
{
	my ($name, $which, $code) = @$case;

	work();
	my $buffer = $node->safe_psql('postgres', qq{
SELECT $which(bufferid) FROM pg_buffercache b
WHERE relfilenode = pg_relation_filenode('t_toast') AND relforknumber = 0 AND NOT isdirty
  AND (SELECT lsn FROM page_header(get_raw_page('t_toast', b.relblocknumber::int))) < (SELECT redo_lsn FROM pg_control_checkpoint())});
	kill_seen($node);
	$code->(read_superblock(pool_file($node))->{blocks_offset} + ($buffer - 1) * BLCKSZ);
	start_warm($node, $name, at_least => 300);
}

# ---------------------------------------------------------------- starts that are cut off
# One that keeps pages and is killed while it recovers is judged again.  After two of them a
# start with pcache.required, which cannot do without the pool, is cold.
work();
kill_seen($node);
$node->append_conf('postgresql.conf', qq{pcache.required = on
restore_command = 'echo \$\$ > $data/../waiting; exec sleep 600'});
append_to_file("$data/standby.signal", '');
for my $k (1, 2)
{
	unlink "$data/../waiting";
	$offset = log_offset($node);
	start_nowait($node);
	my $command = wait_for_line("$data/../waiting");
	is(start_outcome($node, $offset)->{start}, 'warm', "start $k that is cut off: warm");
	kill_all($node);
	kill 'KILL', $command if (eval { slurp_file("/proc/$command/cmdline") } // '') =~ /^sleep\0/;
}
unlink "$data/standby.signal";
is(foretold()->{next_start}, 'cold', 'two starts cut off: foretold');
cold_start($node, qr/^the last start with persistent cache pool "[^"]*" did not become ready$/, 'two starts cut off');
$node->append_conf('postgresql.conf', "pcache.required = off\nrestore_command = ''");

# ---------------------------------------------------------------- one process
work();
$right = contents($node) =~ s/^t_(unlogged|seq).*\n//mgr;
for my $k (1 .. 2)
{
	$offset = kill_backend($node, 'warm');
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "backend $k killed: warm");
	cmp_ok($outcome->{kept} // 0, '>', 300, "backend $k killed: kept pages");
	is(contents($node) =~ s/^t_(unlogged|seq).*\n//mgr, $right, "backend $k killed: contents are right");
}
kill_seen($node);
start_after_kill('kill -9 after crash restarts');

# A fault is no reason to trust memory, with and without the postmaster.
for my $signal (qw(SEGV BUS ILL ABRT SYS))
{
	my $number = { SEGV => 11, BUS => 7, ILL => 4, ABRT => 6, SYS => 31 }->{$signal};

	work();
	$right = contents($node) =~ s/^t_(unlogged|seq).*\n//mgr;
	kill_backend($node, qr/server process \(PID \d+\) was terminated by signal $number: [^,\n]*, and may have overwritten cached pages/, $signal);
	is(contents($node) =~ s/^t_(unlogged|seq).*\n//mgr, $right, "SIG$signal: contents are right");
}
work();
{
	my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});

	# the postmaster does not get to say how it ended
	kill 'STOP', $node->{_pid};
	kill 'SEGV', $pid;
	PCache::Crash::wait_for_death($pid);
	kill_all($node);
	$right = oracle($node);
	$offset = log_offset($node);
	$node->start;
	like(start_outcome($node, $offset)->{reason}, qr/^server process \(PID $pid\) was terminated by signal 11/, 'a fault, and then kill -9: cold');
	is(contents($node), $right, 'a fault, and then kill -9: contents are right');
}

# Without a word in the log nobody knows how a process ended.
$node->append_conf('postgresql.conf', 'log_min_messages = panic');
$node->reload;
work();
{
	my $psql = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $psql->query('SELECT pg_backend_pid()');

	kill 'KILL', $pid;
	eval { $psql->quit };
	# until the postmaster knows it, it goes on
	pause_for_sighting(0.01) while -e "/proc/$pid";
	wait_until_back($node);
	$node->append_conf('postgresql.conf', 'log_min_messages = warning');
	$node->reload;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
	is($node->safe_psql('postgres', q{SELECT last_start, last_start_detail ~ 'was not ended by SIGKILL' FROM pg_pcache_pool}), 'cold|t', 'a kill that is not seen: cold');
}

# ---------------------------------------------------------------- pages that may be wrong
work();
$node->safe_psql('postgres', 'SET zero_damaged_pages = on');
kill_seen($node);
cold_start($node, qr/^pages may have been read with "zero_damaged_pages"/, 'zero_damaged_pages, and then kill -9');

# A file that was changed by somebody else is read again, and no other.
for my $case ([ 'touched', sub { chmod 0640, $_[0]; chmod 0600, $_[0] } ],
	[ 'written', sub { my $bytes = slurp_file($_[0]); write_bytes($_[0], 0, $bytes) } ],
	[ 'exchanged', sub { rename $_[0], "$_[0].x" or die; rename "$_[0].x", $_[0] or die } ],
	[ 'in a directory that was exchanged', sub { rename "$data/base", "$data/base.x" or die; rename "$data/base.x", "$data/base" or die } ])
{
	my ($name, $code) = @$case;

	work();
	my $path = "$data/" . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t_toast')});
	my $n = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_buffercache WHERE NOT isdirty AND relforknumber = 0 AND relfilenode = pg_relation_filenode('t_toast')});
	kill_seen($node);
	# much later than the server has said that it lives
	sleep 1;
	$code->($path);
	# whoever exchanges a file changes the directory, so all of its files may be others
	$outcome = start_after_kill("a file was $name", at_least => $name =~ /exchanged/ ? 0 : 300);
	cmp_ok($outcome->{dropped}{'file changed'} // 0, '>', 0, "a file was $name: its pages are dropped");
	cmp_ok($outcome->{dropped}{'file changed'} // 0, $name =~ /exchanged/ ? '>' : '<=', $n, "a file was $name: and those of others");
}

# ---------------------------------------------------------------- another cluster than it was
cold_after_work('a run in single-user mode', qr/^the pool knows of checkpoint /,
	sub { single_user($node, "UPDATE t_heap SET filler = 'single' WHERE id % 7 = 0;\n") });
cold_after_work('a stock run', qr/^the pool knows of checkpoint /, sub { stock_run($node, 'fast', q{UPDATE t_heap SET filler = 'stock' WHERE id % 9 = 0}) });
cold_after_work('a stock run that was stopped at once', qr/^the pool knows of checkpoint /, sub { stock_run($node, 'immediate') });
cold_after_work('WAL is gone', qr/^the WAL before \S+ on timeline 1 is not what was written$|^could not (open|read) file "pg_wal/,
	sub {
		my ($segment) = (sort grep { /\/[0-9A-F]{24}$/ } glob "$data/pg_wal/*")[-1];
		my $lsn = (run_command([ 'pg_controldata', $data ]))[0] =~ /^Latest checkpoint's REDO WAL file: +(\S+)/m ? $1 : die;
		# all that came after the segment of the redo point, as in an older snapshot
		for my $path (grep { /\/[0-9A-F]{24}$/ && s{.*/}{}r gt $lsn } glob "$data/pg_wal/*") { unlink $path }
		my $bytes = slurp_file("$data/pg_wal/$lsn");
		my $used = length($bytes =~ s/\0+\z//r);
		open my $f, '+<', "$data/pg_wal/$lsn" or die;
		binmode $f;
		seek $f, $used - 40, 0;
		print $f "\0" x 40;
		close $f;
	});
work();
kill_seen($node);
{
	# as after another boot
	patch_superblock(pool_file($node), boot_id => 'x' x 16);
	cold_start($node, qr/^the host was restarted, and the server was not shut down cleanly \(the pool is in memory, which is lost with the power\)$/, 'another boot');
}
$node->stop;
done_testing();
