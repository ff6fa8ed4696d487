
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Compare - a cluster against its copy: answers, contents, pages, log, verdict

=cut

package Walk::Compare;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use LibraryPool;
use PageCompare qw(compare_data_dirs verify_pages);
use Programs;
use Walk::Load;
use Walk::Util;

our @EXPORT = qw(compare_logs compare_answers compare_contents compare_pages compare_pool compare_verdict);

# Lines of a log that tell of damage, unless the copy has them, too.
my $BAD = qr/PANIC|TRAP:|invalid page|unexpected data beyond EOF|xlog flush request|references to invalid pages|page verification failed|could not read block|incorrect resource manager|FATAL:\s++(?!the database system|terminating|sorry|connection to client lost|could not (?:connect|receive|send|start)|streaming replication receiver|the standby|recovery ended before)|persistent cache.*(?:WARNING|violat)|WARNING:.*persistent cache|visibility map bit is set|incorrectly|corrupt|duplicate key|could not access status|segfault|was terminated by signal (?!9)/;

sub normal
{
	my ($line) = @_;
	$line =~ s/^\S+ \S+ \S+ \[\d+\] //;
	$line =~ s/[0-9A-F]+\/[0-9A-F]+|\d+/N/g;
	return $line;
}

sub compare_logs
{
	my ($c, $t, $text) = @_;
	my %known = map { normal($_) => 1 } split /\n/, ($t->{first_log} // '') . $t->log_since;
	my %said;

	$c->{walk}{totals}{'rounds of pg_hotset that read pages'} += () = $text =~ /pg_hotset read \d+ pages/g if $c->{walk}{warming};

	for my $line (split /\n/, $text)
	{
		next if $line !~ $BAD || $known{ normal($line) } || $said{ normal($line) }++;
		next if $line =~ /possibly corrupted shared memory|This probably means that some data|contrecord|starting cold: .* was terminated by signal/;
		next if $c->{without} && $line =~ /WARNING:.*persistent cache/;

		# replay drops a database, or has not created it yet, while pg_hotset goes there
		next if $c->{walk}{warming} && $line =~ /pg_hotset worker FATAL:  database \d+ does not exist/;
		next if $c->{damaged} && $line =~ /page verification failed|invalid page|ignoring checksum failure/;
		$c->{walk}->problem("$c->{name}: log: $line");
	}
	return;
}

sub compare_answers
{
	my ($c, $seen, $copy) = @_;
	my $w = $c->{walk};
	my $name = $c->{name};
	my $first = $copy->{floor};
	my $last = $copy->{answers}[-1];
	my $before;

	for my $who ([ 'the copy', $copy ], [ $name, $seen ])
	{
		for my $answer (@{ $who->[1]{answers} })
		{
			my @bad = $c->{lossy} ? () : invariants(@$answer);
			$w->problem("$who->[0]: an answer of no snapshot while it starts: @bad; last answer: @{ $who->[1]{answers}[-1] }") if @bad;
			last if @bad;
		}

		# files that are ahead of what is left of WAL upset any server
		next if $c->{lossy} && @{ $copy->{errors} };
		$w->problem("$who->[0]: while it starts: $_") for @{ $who->[1]{errors} };
	}
	for my $answer (@{ $seen->{answers} })
	{
		last if $c->{lossy} && grep { invariants(@$_) } @{ $copy->{answers} };
		my $older = $first && grep { ($answer->[$_] || 0) < ($first->[$_] || 0) } 0, 5, 6;
		$w->problem("$name: an answer older than the copy's oldest one: @$answer, not @$first") if $older;
		$older = $before && grep { ($answer->[$_] || 0) < ($before->[$_] || 0) } 0, 5, 6;
		$w->problem("$name: answers go backwards: @$before, then @$answer") if $older;
		my $newer = $last && $seen->{end} eq 'primary' && $copy->{end} eq 'primary' && grep { ($answer->[$_] || 0) > ($last->[$_] || 0) } 0, 5, 6;
		$w->problem("$name: an answer newer than the copy's last one: @$answer, not @$last") if $newer;
		$before = $answer;
		last if $w->{failed};
	}
	return;
}

sub compare_contents
{
	my ($c, $ours, $copy) = @_;
	my $w = $c->{walk};
	my %names = map { $_ => 1 } keys %{ $ours->{tables} }, keys %{ $copy->{tables} };
	my $n = 0;
	for my $table (sort keys %names)
	{
		my ($a, $b) = map { $_->{tables}{$table} // 'does not exist' } $ours, $copy;
		next if $a eq $b;

		# files are ahead of what is left of WAL; it depends on which page is evicted
		next if $c->{lossy} && grep { /xlog flush request \S+ is not satisfied/ } $a, $b;
		if ($table eq 'postgres.victim' && $c->{damaged})
		{
			# what the file has no longer, the cache may have kept
			(my $right = $w->{victim}) =~ s/ / rows, sum /;
			next if $a eq $right;
			(my $x = $a) =~ s/block \d+//;
			(my $y = $b) =~ s/block \d+//;
			next if $x eq $y;
		}
		$w->problem("$c->{name}: contents differ: $table: $a, without the pool: $b") if $n++ < 4;
	}
	$w->problem("$c->{name}: contents differ: $n tables") if $n > 4;
	$w->{totals}{'tables compared'} += keys %names;
	return;
}

sub compare_pages
{
	my ($c, $dir, $paths) = @_;
	my $w = $c->{walk};
	my $r = compare_data_dirs($c->{data}, $dir);
	my $n = 0;
	for my $d (@{ $r->{hard} })
	{
		(my $base = $d->{path}) =~ s/(?:_\w+)?(?:\.\d+)?$//;
		my $k = $paths->{$base};

		# files that no catalog knows: created by a transaction that is lost
		next if !$k && $base !~ m{^base/(?:1|4)/};
		next if $k && $k->{persistence} eq 'u' && ($d->{fork} // '') ne 'init';
		next if $k && $c->{damaged} && $k->{name} =~ /^postgres\.victim/;
		$w->problem(sprintf('%s: pages differ: %s block %d (%s): %s', $c->{name}, $d->{path}, $d->{block}, $k ? $k->{name} : '?', $d->{why}))
		  if $n++ < 4;
	}
	$w->problem("$c->{name}: pages differ: $n") if $n > 4;
	$w->{totals}{'pages compared'} += $r->{pages};
	return;
}

# Kept pages of a server that was stopped cleanly, against the files.
sub compare_pool
{
	my ($c) = @_;
	return if $c->{conf}{'pcache.mode'} eq 'off' || !$c->{clean};
	local %Programs::env = $c->shim;
	my (undef, $wrong, $text) = verify_pages($c->{walk}{bin}, $c->{data}, "$c->{pool}/pool", "$c->{dir}/verify-pages");
	$c->{walk}{totals}{'pools compared'}++;
	return if !defined $wrong || $c->{damaged} && $text =~ /checksum in file/ && $text !~ /impossible\s+[1-9]/;
	$c->{walk}->problem("$c->{name}: pg_pcache verify --pages after a clean stop: $wrong");
	return;
}

sub compare_verdict
{
	my ($c, $verdict, $text) = @_;
	my $w = $c->{walk};
	my ($line) = $c->outcome($text);
	$w->{totals}{ $line =~ /^kept/ ? 'warm starts' : 'cold starts' }++ if $line !~ /^The/;
	$w->{totals}{"cold: $1"}++ if $line =~ /^starting cold: (.{0,60})/;
	return $w->problem("$c->{name}: the log has no word of the cache") if $line eq '';
	my $without = $line =~ /^The server starts without/;
	$w->{totals}{'starts without the pool'}++ if $without;
	return $w->problem("$c->{name}: the pool is " . ($c->{without} // 'sound') . ", the log: $line") if $without != !!$c->{without};
	return $w->problem("$c->{name}: pg_pcache verify: exit status $verdict->{rc}: $verdict->{error}") if $verdict->{rc} != 0 && $verdict->{rc} != 2;

	# a standby may get it from its primary, of which the tool knows nothing
	return if $c->{stream} && ($verdict->{detail} // '') =~ /could not open file "pg_wal/;
	my $foretold = $verdict->{rc} == 0 ? 'kept' : $verdict->{reason} eq 'unavailable' ? 'The server starts without' : 'starting cold';
	my $young = shortened($text)->{young};
	return if is_warm_by_young($line, $text) && $foretold eq 'starting cold' && $verdict->{reason} =~ /pages/;
	if ($line !~ /^$foretold/)
	{
		return $w->problem("$c->{name}: pg_pcache verify said $foretold (" . ($verdict->{detail} // '') . "), the log: $line");
	}
	$w->problem("$c->{name}: pg_pcache verify foretold $verdict->{pages}{kept} pages, the log: $line")
	  if $line =~ /^kept (\d+)/ && defined $verdict->{pages}{kept} && $1 - $young != $verdict->{pages}{kept};
	return;
}

1;
