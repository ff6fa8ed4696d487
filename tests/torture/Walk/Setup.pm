
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Setup - the clusters of a walk, and its last events

=cut

package Walk::Setup;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);

use Walk::Events;
use Walk::Load;
use Walk::Util;

our @EXPORT = qw(set_up finish);

# The clusters, with their tables, running.
sub set_up
{
	my ($w, $r) = @_;
	my $n = $r->pick('n', 1, 1, 1, 2, 2, 3);
	$w->{brief} = $r->chance('brief', 0);
	my $flat = $r->chance('flat', 0.5);
	my $checksums = $w->{checksums} = $r->pick('checksums', 1, 1, 0);
	my $archive = $r->pick('archive', 'on', 'off');
	my $minimal = $r->chance('minimal', 0.5) && $n == 1 && $archive eq 'off';
	my %conf = (
		full_page_writes => $r->pick('fpw', 'on', 'on', 'off'),
		wal_log_hints => $r->pick('hints', 'on', 'off'),
		shared_buffers => $r->pick('buffers', '1MB', '4MB', '16MB', '32MB'),
		'pcache.mode' => $r->pick('mode', 'always', 'always', 'always', 'always', 'planned_restart', 'off'),
		'pcache.worker_delay' => $r->pick('delay', '10ms', '20ms', '200ms'),
		wal_sync_method => $r->pick('wal', @{ $w->{methods} }),
		wal_level => $minimal ? 'minimal' : 'replica',
		wal_skip_threshold => '0',
		$minimal ? (max_wal_senders => 0) : (),
		archive_mode => $archive,
		wal_writer_delay => $r->pick('writer', '200ms', '10s'),
		wal_compression => $r->pick('compression', 'off', 'lz4'),
		recovery_prefetch => $r->pick('prefetch', 'try', 'off'),
		'pcache.recovery' => $r->pick_apart('recovery', 'short', 'short', 'full'));
	$conf{full_page_writes} = 'on' if $n > 1;

	# segments on tmpfs count as persistent memory then, and so does the pool
	if ($conf{wal_sync_method} eq 'pmem') { $ENV{PMEM_IS_PMEM_FORCE} = 1 }
	else { $w->{methods} = [ grep { $_ ne 'pmem' } @{ $w->{methods} } ] }
	$w->{archiving} = $archive eq 'on';
	$w->{senders} = !$minimal;

	my $a = Walk::Cluster->new($w, 'a', conf => {%conf});
	$w->{clusters}{a} = $a;
	copy_dir($a->{out}, $w->{template}->($checksums), $a->{data});
	$a->make_pool;
	$a->spawn;
	my $seen = watch_start($a);
	$a->sql(setup_statements($w->{server}));

	# pages that have the same LSN, or none
	$a->sql("BEGIN; TRUNCATE flat; INSERT INTO flat SELECT g, repeat(md5(g::text), 100) FROM generate_series(1, 1400) g; COMMIT", 'CHECKPOINT') if $flat;
	$w->{victim} = $a->sql(VICTIM_SQL) =~ s/\|/ /r;
	$w->{victim_path} = $a->sql(q{SELECT pg_relation_filepath('victim')});
	$w->{heaps} = [ split /,/, $a->sql(q{SELECT string_agg(relfilenode::text, ',') FROM pg_class WHERE relname IN ('ledger', 'victim')}) ];
	return if $n == 1;

	$a->stop('fast');
	my $cascade = $r->chance('cascade', 0.6);

	# standbys follow what their primary has in shared buffers, all the time
	$w->{warming} = $r->chance('warming', 0.4) && $w->{server}->has_hotset;
	for my $name ((qw(b c))[ 0 .. $n - 2 ])
	{
		my $c = Walk::Cluster->new($w, $name, conf => {%conf});
		$w->{clusters}{$name} = $c;
		copy_dir($c->{out}, $a->{data}, $c->{data});
		follow($c, $name eq 'c' && $cascade ? $w->{clusters}{b} : $a);
		$c->make_pool;
	}
	for my $name (sort keys %{ $w->{clusters} })
	{
		$w->{clusters}{$name}->spawn;
		watch_start($w->{clusters}{$name});
	}
	return;
}

sub watch_start
{
	my ($c) = @_;
	my $deadline = time + 120;
	while (time < $deadline)
	{
		die "$c->{name} does not start: " . $c->log_since if defined $c->ended;
		my ($session) = $c->connect;
		return if $session;
		sleep 0.01;
	}
	die "$c->{name} does not start in two minutes\n";
}

# The events that bring all clusters up once more: what was hidden shows now.
sub finish
{
	my ($w) = @_;
	my @events;
	for my $name (sort keys %{ $w->{clusters} })
	{
		my $c = $w->{clusters}{$name};
		next if $c->{dead};
		push @events, "standby_settings\@$name:delay=0,stream=1" if ($c->{recovery} // '') eq 'standby';
		push @events, "start\@$name:zero=no" if !$c->{up};
		push @events, "resume\@$name" if $c->{recovery};
		push @events, "stop\@$name:mode=fast,load=none", "repair_file\@$name", "start\@$name:look=answers" if $c->{damaged};
		push @events, "stop\@$name:mode=fast,load=none", "start\@$name:look=pages,zero=no";
	}
	return @events;
}

1;
