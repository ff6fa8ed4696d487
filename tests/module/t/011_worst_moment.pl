
# Copyright (c) 2026, the persistent-cache developers

# The worst moments to be killed: a process is in the middle of something, and everything
# gets SIGKILL there.  The next start with the library has what one without it has.
#
# PCACHE_MOMENT=pattern selects moments by their names.  PCACHE_RECOVERY=short has pages stay
# that are younger than the redo point, also in those moments that are not about such pages.

use strict;
use warnings FATAL => 'all';

use PCache::Crash;
use PCacheMoment;
use PCacheModule;
use PostgreSQL::Test::Utils;
use Test::More;

# PCACHE_DESC_IS_YOUNG
use constant IS_YOUNG => 5;

my $why_not = why_no_moments();
plan skip_all => $why_not if $why_not;

my $pattern = $ENV{PCACHE_MOMENT} // '';
my $short = ($ENV{PCACHE_RECOVERY} // '') eq 'short';
my $major = major();
my $node = module_node('main', mode => 'always', standby => 1,
	conf => "wal_writer_delay = 10s\nbgwriter_delay = 10s\nwal_keep_size = 256MB\n" . ($major >= 18 ? "io_workers = 1\n" : ''));

# With checksums the first hint after a checkpoint is logged, and the page gets an LSN
# that has it dropped in any case.
run_command([ 'pg_checksums', '--disable', '-D', $node->data_dir ]);
$node->start;
load_tables($node);
$node->safe_psql('postgres', q{
CREATE TABLESPACE space LOCATION '';
CREATE SCHEMA other;
CREATE TABLE other.big WITH (fillfactor = 10) AS SELECT i AS id, repeat('b', 500) AS s FROM generate_series(1, 3300) i;
CREATE TABLE m (id int)});

my $no_images = [ full_page_writes => 'off' ];

# The functions that majors have under other names.
my $write = [ 'mdwrite', 'mdwritev' ];
my $truncate = [ 'smgrtruncate2', 'smgrtruncate' ];
my $drop_buffers = [ 'DropRelFileNodeBuffers', 'DropRelationBuffers' ];
my $extend = [ 'mdzeroextend', 'mdextend' ];
my $clear = [ 'visibilitymap_clear_locked', 'visibilitymap_clear' ];
my $read = [ 'mdstartreadv', 'mdreadv', 'mdread' ];

my $by_key = 'SET enable_seqscan = off; SET enable_bitmapscan = off';

# The delete of a row is not flushed, and the page of the row has a younger LSN.  So whoever
# finds the row dead may say so in the index.
my %dead_entry = (
	stop => ['walwriter'],
	after => 'SET synchronous_commit = off; DELETE FROM m WHERE id = 100',
	idle => q{SET synchronous_commit = off; BEGIN; UPDATE m SET s = 'younger' WHERE id = 104},
	prepare => "$by_key; SET synchronous_commit = off; SELECT * FROM m WHERE id = 98",
	sql => 'SELECT * FROM m WHERE id = 100',
	check => sub { like($_[0], qr/^m\|1480\|/m, 'the commit was lost') });

# An index has a page that can be used again, and its first page is full.
my $free_index_page = 'DELETE FROM m WHERE id BETWEEN 1000 AND 2500; VACUUM m; SELECT txid_current(); SELECT txid_current(); VACUUM m; VACUUM m';
my $initialized_pages = q{
SELECT count(*) FROM generate_series(1, pg_relation_size('m_pkey') / 8192 - 1) b, page_header(get_raw_page('m_pkey', b::int)) h
WHERE h.lsn = '0/0' AND EXISTS (SELECT FROM pg_buffercache c
  WHERE relfilenode = pg_relation_filenode('m_pkey') AND relforknumber = 0 AND relblocknumber = b AND NOT isdirty)};

# A row is changed on a page that may stay although it is younger than the redo point: the SQL, the
# function, its record, and its last unlock.  All pages of the table have been changed before, so
# none of them is all-visible, and no page of the map is locked as well.  Only the last one has
# room for long rows.
my $every_page = q{UPDATE m SET s = repeat('o', 500) WHERE id % 20 = 0; INSERT INTO m VALUES (2999, 1, repeat('p', 1900))};
my $write_wal = [ q{SELECT pg_logical_emit_message(true, 'test', 'its commit writes WAL') IS NOT NULL} => 't' ];
my @row_changes = (
	[ 'a row is inserted', q{INSERT INTO m VALUES (1, 1, 'new')}, 'heap_insert', 'XLogInsert', 'UnlockReleaseBuffer' ],
	[ 'a row is changed on its page', q{UPDATE m SET s = 'h' WHERE id = 102}, 'heap_update', 'XLogInsert', 'LockBuffer' ],
	[ 'a row is deleted', 'DELETE FROM m WHERE id = 102', 'heap_delete', 'XLogInsert', 'LockBuffer' ],
	[ 'a row is locked', 'SELECT FROM m WHERE id = 102 FOR UPDATE', 'heap_lock_tuple', 'XLogInsert', 'LockBuffer' ],
	[ 'rows are copied', q{COPY m FROM PROGRAM 'printf "1\\\\t1\\\\tnew\\\\n3\\\\t1\\\\tnew\\\\n"'}, 'heap_multi_insert', 'XLogInsert', 'UnlockReleaseBuffer' ],
	# that it is locked is another record, before
	[ 'a row is moved to another page', q{UPDATE m SET s = repeat('n', 1900) WHERE id = 102}, 'heap_update', 'XLogInsert 1', 'LockBuffer 1' ]);

# The moments of one of them.  refused: so many pages of the table do not stay.
sub moments_of_change
{
	my ($what, $sql, $function, $log, $unlock) = @_;
	my ($first) = $unlock =~ /(\w+) /;
	my $pages = $first ? 2 : 1;
	my %common = (sql => $sql, after => $every_page, stop => ['walwriter'], conf => [ 'pcache.recovery' => 'short' ]);

	return map { +{ %common, name => "$what: $_->[0]", refused => $_->[1],
		at => [ $function, @{ $_->[2] } ], see => $_->[3], dropped => [ $_->[1] ? 'dirty' : () ] } } (
		[ 'a dirty page, and nothing logged', $pages, [$log] ],
		[ 'a logged change, and the page has not its LSN', $pages, [ $log, 'return' ], $write_wal ],
		[ 'a locked page, which has its LSN', $pages, [ $log, $first // $unlock ], $write_wal ],
		$first ? [ 'one of two pages is locked', 1, [ $log, $first, 'return' ], $write_wal ] : (),
		[ 'an unlocked page, and WAL is not written', $pages, [ $log, $unlock, 'return' ] ],
		[ 'an unlocked page, and WAL is written', 0, [ $log, $unlock, 'return' ], $write_wal ]);
}

# Each has a name, and the steps to a place in a session that runs some SQL, or in
# another process meanwhile.  Before the last checkpoint other SQL is run, and some
# more after it.
my @moments = (
	# ---------------------------------------------------------------- a page is locked and changed
	{   name => 'a page is half pruned', at => ['PageRepairFragmentation'], dropped => ['in change'],
		hold => 1, before => q{UPDATE m SET s = s || '1' WHERE id <= 50}, sql => 'VACUUM m' },
	{   name => 'a row is on its page, which is not dirty', at => [ 'heap_insert', 'PageAddItemExtended', 'return' ], dropped => ['in change'],
		sql => q{INSERT INTO m VALUES (1, 1, 'new')} },
	{   name => 'a page is not all-visible any more, and its map not dirty', at => [ 'heap_insert', $clear, 'MarkBufferDirty' ],
		dropped => ['in change'], sql => q{INSERT INTO m VALUES (1, 1, 'new')} },
	{   name => 'a page with a new row is about to be dirty', at => [ 'heap_insert', 'MarkBufferDirty 1' ], dropped => ['in change'],
		sql => q{INSERT INTO m VALUES (1, 1, 'new')} },
	{   name => 'an update is about to be logged', at => [ 'heap_update', 'XLogInsert' ], dropped => ['dirty'],
		sql => q{UPDATE m SET s = s || '1' WHERE id = 100} },
	{   name => 'entries have left an index page that is not dirty', at => [ 'PageIndexMultiDelete', 'return' ], dropped => ['in change'],
		before => 'DELETE FROM m WHERE id % 3 = 0', sql => 'VACUUM (INDEX_CLEANUP ON) m' },
	{   name => 'an index page is half split', at => [ 'PageRestoreTempPage', 'return' ], dropped => ['in change'],
		sql => q{INSERT INTO m VALUES (1001, 1, 'new')} },
	{   name => 'a page of the map is set, and not dirty', at => [ 'visibilitymap_set', 'MarkBufferDirty' ], dropped => ['in change'],
		before => q{UPDATE m SET s = s || '1' WHERE id <= 50}, sql => 'VACUUM m' },
	{   name => 'a row of a catalog is changed in place', at => [ 'heap_inplace_update_and_unlock', 'MarkBufferDirty' ], dropped => ['in change'],
		before => q{INSERT INTO m SELECT i, 1, 'more' FROM generate_series(5001, 5999, 2) i}, sql => 'VACUUM m' },

	{   name => 'pages of an unlogged table are clean', at => [ 'heap_insert', 'PageAddItemExtended', 'return' ], dropped => [ 'unlogged', 'in change' ],
		before => join('; ', map { "ALTER TABLE t_unlogged SET TABLESPACE $_; ALTER INDEX t_unlogged_pkey SET TABLESPACE $_" } 'space', 'pg_default')
		  . q{; SELECT pg_prewarm('t_unlogged'), pg_prewarm('t_unlogged_pkey')},
		sql => q{INSERT INTO m VALUES (1, 1, 'new')} },

	# ---------------------------------------------------------------- hints
	{   name => 'a hint is set, and its page not dirty', at => ['MarkBufferDirtyHint'], dropped => ['in change'],
		before => q{INSERT INTO m VALUES (1, 1, 'new')}, sql => 'SELECT sum(v) FROM m' },
	(   map {
			+{  name => "an index entry is dead, its page $_->[0], and the commit is lost", at => $_->[1], dropped => [ $_->[2] ], %dead_entry }
		} ([ 'not dirty', [ '_bt_killitems', 'MarkBufferDirtyHint' ], 'in change' ], [ 'dirty', [ '_bt_killitems', 'return' ], 'dirty' ])),

	# ---------------------------------------------------------------- initialized, and not dirty
	{   name => 'a page of an index is used again, and not dirty', at => [ 'GetFreeIndexPage', 'PageInit', 'return' ], dropped => ['in change'],
		before => $free_index_page, sql => 'INSERT INTO m VALUES (1)' },
	{   name => 'a page of an index was to be used again, and then there was an error', at => [ 'GetFreeIndexPage', 'PageInit', 'ReadBuffer', 'error' ],
		go_on => 1, before => $free_index_page, sql => 'INSERT INTO m VALUES (1)', dropped => ['no LSN'], see => [ $initialized_pages => '1' ] },
	{   name => 'a table was extended, and then the query was cancelled', at => [ $extend, 'return' ], cancel => 1,
		sql => q{INSERT INTO m SELECT 2 * i + 1, 1, repeat('s', 1000) FROM generate_series(1, 900) i} },

	# ---------------------------------------------------------------- headers
	{   name => 'a header is locked', process => 'checkpointer', at => [ 'CheckPointBuffers', 'LockBufHdr 100', 'return' ], sql => 'CHECKPOINT',
		dropped => ['in change'] },
	{   name => 'a buffer gets another tag', at => ['tag'], after => q{SELECT pg_prewarm('other.big') FROM generate_series(1, 6)}, prepare => q{SELECT pg_prewarm('m', 'buffer', 'main', 5, 5)},
		sql => q{SELECT pg_prewarm('m')} },
	# what was in the buffer before is there still
	{   name => 'a buffer has another tag, and its page is not being read yet', at => [ 'BufTableInsert', 'LWLockRelease' ],
		after => q{SELECT pg_prewarm('other.big') FROM generate_series(1, 6)}, prepare => q{SELECT pg_prewarm('m', 'buffer', 'main', 5, 5)},
		sql => q{SELECT pg_prewarm('m')} },

	# ---------------------------------------------------------------- writes
	(   map {
			my ($how, @at) = @$_;
			({  name => "a checkpoint $how a page", process => 'checkpointer', at => [ map { $_ eq 'write' ? $write : $_ } @at ],
				after => 'UPDATE m SET v = v + 1', sql => 'CHECKPOINT', dropped => ['dirty'] },
			 # who is no checkpointer asks it to sync the file, with a lock
			 {  name => "a session $how a page", at => [ 'FlushRelationBuffers', map { $_ eq 'write' ? $write : $_ eq 'LWLockRelease' ? "$_ 1" : $_ } @at ],
				after => 'UPDATE m SET v = v + 1', sql => 'ALTER TABLE m SET TABLESPACE space', dropped => ['dirty'] })
		} ([ 'is about to write', 'write' ], [ 'has written', 'write', 'return' ], [ 'has written, and cleared the flag of', 'write', 'LWLockRelease' ])),
	{   name => 'a checkpoint is about to write pg_control', process => 'checkpointer', at => ['update_controlfile'],
		after => 'UPDATE m SET v = v + 1', sql => 'CHECKPOINT' },
	{   name => 'a checkpoint has written pg_control', process => 'checkpointer', at => [ 'update_controlfile', 'return' ],
		after => 'UPDATE m SET v = v + 1', sql => 'CHECKPOINT', seen => 1 },
	{   name => 'a checkpoint has written pg_control, unseen', process => 'checkpointer', at => [ 'update_controlfile', 'return' ],
		stop => ['persistent cache'], after => 'UPDATE m SET v = v + 1', sql => 'CHECKPOINT', cold => qr/^the pool knows of checkpoint / },

	# as an error of fsync(), before the checkpointer can say so
	{   name => 'the write of a map is lost, and the checkpoint not complete', process => 'checkpointer', at => ['update_controlfile'],
		after => 'DELETE FROM m WHERE id <= 100', lose => '_vm', sql => 'CHECKPOINT', dropped => ['not a main fork'] },

	# ---------------------------------------------------------------- reads
	(   map {
			my ($method) = @$_;
			my $how = $method ? ", io_method = $method" : '';

			map {
				+{  name => "a page $_->[0]$how", at => $_->[1], conf => $method ? [ io_method => $method ] : undef,
					before => 'ALTER TABLE m SET TABLESPACE space', prepare => $by_key, sql => 'SELECT * FROM m WHERE id = 2' }
			} ([ 'is about to be read', [$read] ], [ 'was read, and is not valid', [ $read, 'return' ] ])
		} [''], $major < 18 ? () : (['sync'], $node->safe_psql('postgres', q{SELECT 'io_uring' = ANY(enumvals) FROM pg_settings WHERE name = 'io_method'}) eq 't' ? ['io_uring'] : ())),
	(   $major < 18 ? () : map {
			+{  name => "an I/O worker $_->[0]", process => 'io worker', at => $_->[1], before => 'ALTER TABLE m SET TABLESPACE space', sql => q{SELECT pg_prewarm('m')} }
		} ([ 'is about to read pages', ['pgaio_io_perform_synchronously'] ], [ 'has read pages', [ 'pgaio_io_perform_synchronously', 'return' ] ])),

	# ---------------------------------------------------------------- files
	{   name => 'a table is about to be extended', at => [$extend], sql => q{INSERT INTO m SELECT 2 * i + 1, 1, repeat('s', 1000) FROM generate_series(1, 900) i} },
	{   name => 'a table was extended', at => [ $extend, 'return' ], sql => q{INSERT INTO m SELECT 2 * i + 1, 1, repeat('s', 1000) FROM generate_series(1, 900) i} },
	(   map {
			+{  name => "a table is truncated: $_->[0]", at => $_->[1], before => 'DELETE FROM m WHERE id > 100; VACUUM (TRUNCATE OFF) m',
				sql => 'VACUUM (TRUNCATE ON) m' }
		} ([ 'before its buffers are dropped', [$truncate] ], [ 'while they are', [$drop_buffers] ],
			[ 'before its file is', ['mdtruncate'] ], [ 'after its file is', [ 'mdtruncate', 'return' ] ])),
	(   map {
			+{  name => "a table is dropped: $_->[0]", at => $_->[1], before => 'CREATE TABLE w AS SELECT * FROM m', sql => 'DROP TABLE w' },
			+{  name => "a table gets a new file: $_->[0]", at => $_->[1], sql => 'TRUNCATE m' }
		} ([ 'committed, buffers are there', ['smgrdounlinkall'] ], [ 'before its file is', ['mdunlink'] ], [ 'after its file is', [ 'mdunlink', 'return' ] ])),

	# ---------------------------------------------------------------- recovery
	(   map {
			my ($what, $title, $at, $dropped, $conf) = @$_;
			+{  name => "recovery: $what", redo => $title, at => $at, dropped => $dropped ? [$dropped] : [], conf => $conf,
				after => 'UPDATE m SET v = v + 1; DELETE FROM m WHERE id > 200', also => 'VACUUM (TRUNCATE ON) m' }
		} ([ 'a page has its image, and is not dirty', 'startup', [ 'RestoreBlockImage 5', 'return' ], 'in change' ],
			[ 'a table is truncated, before its buffers are dropped', 'startup', [ 'smgr_redo', $truncate ] ],
			[ 'a table is truncated, before its file is', 'startup', [ 'smgr_redo', 'mdtruncate' ] ],
			[ 'a table is truncated, after its file is', 'startup', [ 'smgr_redo', 'mdtruncate', 'return' ] ],
			[ 'the last checkpoint is about to begin', 'checkpointer', ['update_controlfile'] ],
			[ 'the last checkpoint is writing', 'checkpointer', [$write] ],
			[ 'the last checkpoint is about to write pg_control', 'checkpointer', ['update_controlfile 1'] ],
			[ 'the last checkpoint has written pg_control', 'checkpointer', [ 'update_controlfile 1', 'return' ] ],
			# from here on without images
			[ 'a page of the map is not dirty yet', 'startup', [ 'heap_redo', $clear, 'MarkBufferDirty' ], 'in change', $no_images ],
			[ 'a heap page is not dirty yet', 'startup', [ 'heap_redo', $clear, 'MarkBufferDirty', 'MarkBufferDirty' ], 'in change', $no_images ],
			[ 'an index page is not dirty yet', 'startup', [ 'btree_redo', 'MarkBufferDirty' ], 'in change', $no_images ])),
	{   name => 'the write of a table is lost, and the checkpoint not complete', process => 'checkpointer', at => ['update_controlfile'],
		after => 'DELETE FROM m WHERE id <= 100', lose => '', conf => $no_images, sql => 'CHECKPOINT', dropped => ['younger than redo'] },

	# ---------------------------------------------------------------- pages younger than redo
	(map { moments_of_change(@$_) } @row_changes),
);

# The table of a moment, on new pages.  All pages of its primary key are full.
sub fresh_table
{
	my ($moment) = @_;
	my $holder;

	$node->safe_psql('postgres', $_) for "DROP TABLE IF EXISTS m",
	q{
CREATE TABLE m (id int, v int, s text) WITH (fillfactor = 70);
INSERT INTO m SELECT 2 * i, i % 10, repeat('s', 100) FROM generate_series(1, 1500) i;
ALTER TABLE m ADD PRIMARY KEY (id) WITH (fillfactor = 100);
CREATE INDEX m_index ON m (v);
DELETE FROM m WHERE id > 2960},
	'VACUUM m';
	# dead rows that have their hints, and are not pruned
	$holder = $node->background_psql('postgres');
	$holder->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1') if $moment->{hold};
	$node->safe_psql('postgres', $_) for split(/; /, $moment->{before} // '');
	$node->safe_psql('postgres', 'SELECT count(*) FROM m') if $moment->{hold};
	$holder->quit;
	$node->safe_psql('postgres', $_) for q{SELECT sum(pg_prewarm(r)) FROM unnest(ARRAY['m_pkey', 'm_index']) r},
	($moment->{name} =~ /read/ ? () : q{SELECT pg_prewarm('m')}),
	'CHECKPOINT';
	return;
}

# The blocks of that table that the last start has kept as young pages.
sub young_blocks
{
	my $pool = pool_file($node);
	my $sb = read_superblock($pool);
	my $file = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('m')});

	return map { $_->{block_number} }
	  grep { $_->{why_free} == IS_YOUNG && $_->{sum} == $sb->{incarnation} && $_->{rel_number} == $file && $_->{fork_number} == 0 }
	  map { read_descriptor($pool, $_) } 0 .. $sb->{slots_used} - 1;
}

sub have_moment
{
	my ($moment) = @_;
	my $name = $moment->{name};
	my ($lost, $bytes);

	fresh_table($moment);
	if (defined $moment->{lose})
	{
		$lost = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('m')}) . $moment->{lose};
		$bytes = slurp_file($lost);
	}
	stop_signal($node, @{ $moment->{stop} // [] });
	$node->safe_psql('postgres', $moment->{after}) if $moment->{after};
	$node->safe_psql('postgres', $moment->{also}) if $moment->{also};
	idle_session($node, $moment->{idle}) if $moment->{idle};
	if ($moment->{redo})
	{
		kill_all($node);
		start_until($node, $name, $moment->{redo}, %$moment);
	}
	elsif ($moment->{process})
	{
		stop_process($node, $name, $moment->{process}, %$moment);
	}
	else
	{
		stop_session($node, $name, %$moment);
	}
	is($node->safe_psql('postgres', $moment->{see}[0]), $moment->{see}[1], "$name: seen") if $moment->{see};
	# writes to the file are lost that have been made since it had these bytes
	write_bytes($lost, 0, $bytes) if defined $lost;
	# pg_control was written, which the worker has to see first
	kill_seen($node) if $moment->{redo} || $moment->{seen};
	# a page that is younger, and one that is dirty, may stay, and records of both are skipped
	my $outcome = killed_there($node, $name, %$moment, $short && $moment->{dropped} ? (dropped => [ grep { !$moment->{redo} && !/younger/ } @{ $moment->{dropped} } ]) : ());
	if (defined $moment->{refused})
	{
		my ($n, $young) = ($node->safe_psql('postgres', q{SELECT pg_relation_size('m') / 8192}), scalar young_blocks());
		is($n - $young, $moment->{refused}, "$name: of $n pages younger than redo all stay but for $moment->{refused}");
	}
	return;
}

# What is set for the moment before.
my @conf;

for my $moment (@moments)
{
	my @new = @{ $moment->{conf} // [] };

	next if $moment->{name} !~ /$pattern/;
	if ("@new" ne "@conf")
	{
		$node->stop if defined $node->{_pid};
		$node->adjust_conf('postgresql.conf', $conf[0], undef) if @conf;
		$node->append_conf('postgresql.conf', "$new[0] = $new[1]") if @new;
		@conf = @new;
		$node->start(fail_ok => "@new" eq 'io_method io_uring');
	}
	# some kernels, and most containers, do not allow it
	if (!defined $node->{_pid})
	{
		note("$moment->{name}: left out, as the kernel has no io_uring");
		next;
	}
	have_moment($moment);
}

$node->stop;
done_testing();
