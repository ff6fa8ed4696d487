
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

FileCut - what does a power cut leave of files?

=head1 DESCRIPTION

cut_files() merges some directories, the roots, with their shadow (see
tests/powercut/README) into what the next boot finds.  A random part of what differs
arrives:

  contents  in units: a line, a sector or a page; those that do not arrive are as the
            last sync left them, or zeros
  length    that of the last sync, or what became of it
  names     as at the last sync, or what became of them.  Names that lead to the
            same file, before or after, belong together: a rename happens or not

=cut

package FileCut;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Fcntl qw(S_ISDIR S_ISREG);
use File::Find qw(find);
use File::Path qw(make_path remove_tree);

use Programs;

our @EXPORT = qw(all_durable cut_units cut_files);

# All that the roots hold is durable now.  To be called with the environment that
# has the shim keep the shadow.
sub all_durable
{
	my ($shadow, @roots) = @_;
	remove_tree($shadow);
	make_path($shadow);
	run_to("$shadow.out", 'sync', '-f', @roots) == 0 or die slurp("$shadow.out");
	return;
}

# How many of 1024 arrive.
sub share { return (0, 10, 100, 512, 900, 1024)[ int rand 6 ] }

# The parameters of a cut: the shadow, the shares, and what was found.
my %cut;

sub arrives { return rand(1024) < $_[0] }

# The names in a directory: a reference to a hash, name => target as files.c has it.
sub live_names
{
	my ($dir) = @_;
	my %names;
	opendir(my $dh, $dir) or die "$dir: $!";
	for my $name (grep { $_ ne '.' && $_ ne '..' } readdir $dh)
	{
		my (undef, $inode, $mode) = lstat "$dir/$name" or die "$dir/$name: $!";
		$names{$name} = -l _ ? 'l' . readlink("$dir/$name") : S_ISDIR($mode) ? "d$inode" : S_ISREG($mode) ? "f$inode" : next;
	}
	closedir $dh;
	return \%names;
}

sub durable_names
{
	my ($inode) = @_;
	my %names;
	opendir(my $dh, "$cut{shadow}/$inode.d") or return {};
	for my $name (grep { $_ ne '.' && $_ ne '..' } readdir $dh)
	{
		$names{$name} = readlink("$cut{shadow}/$inode.d/$name") // die "$cut{shadow}/$inode.d/$name: $!";
	}
	closedir $dh;
	return \%names;
}

# Where all that is there now is: $cut{live} is inode => path.
sub find_live
{
	my ($dir) = @_;
	my $names = live_names($dir);
	for my $name (keys %$names)
	{
		my ($kind, $inode) = $names->{$name} =~ /^([df])(\d+)$/ or next;
		$cut{live}{$inode} = "$dir/$name";
		find_live("$dir/$name") if $kind eq 'd';
	}
	return;
}

# What a directory has after the cut: a reference to a hash, name => target.
sub names_after
{
	my ($durable, $live) = @_;
	my %after = %$durable;
	my %changed = map { $_ => 1 } grep { ($durable->{$_} // '') ne ($live->{$_} // '') } keys %{ { %$durable, %$live } };
	my %by_target;
	for my $name (sort keys %changed)
	{
		push @{ $by_target{$_} }, $name for grep { defined } $durable->{$name}, $live->{$name};
	}
	for my $first (sort keys %changed)
	{
		next if !delete $changed{$first};
		my @group = ($first);
		for (my $i = 0; $i < @group; $i++)
		{
			push @group, grep { delete $changed{$_} }
			  map { @{ $by_target{$_} } } grep { defined } $durable->{ $group[$i] }, $live->{ $group[$i] };
		}
		my $arrives = arrives($cut{names});
		$cut{count}{ $arrives ? 'names arrived' : 'names lost' } += @group;
		next if !$arrives;
		for my $name (@group)
		{
			delete $after{$name};
			$after{$name} = $live->{$name} if defined $live->{$name};
		}
	}
	return \%after;
}

# What becomes of the contents of a file, which may be there still.
sub merge
{
	my ($inode, $path) = @_;
	my $durable = "$cut{shadow}/$inode";
	my $length = $path =~ m{/pg_wal/[0-9A-F]{24}$} ? $cut{wal_unit} : $cut{unit};
	my ($size, $live_size) = ((-s $durable) // 0, -s $path);
	$size = $live_size if $size != $live_size && arrives($cut{names});
	if ($path !~ m{/pool(?:\.tmp)?$})
	{
		open(my $live, '+<:raw', $path) or die "$path: $!";
		my $shadow;
		open($shadow, '<:raw', $durable) or die "$durable: $!" if -e $durable;
		for (my $at = 0; $at < $live_size && $at < $size; $at += 65536)
		{
			my ($x, $y) = ('', '');
			sysread($live, $x, 65536);
			sysread($shadow, $y, 65536) if $shadow;
			$y .= "\0" x (length($x) - length $y) if length $y < length $x;
			next if $x eq $y;
			my $changed = 0;
			for (my $unit = 0; $unit < length $x; $unit += $length)
			{
				my ($new, $old) = map { substr($_, $unit, $length) } $x, $y;
				next if $new eq $old;
				my $arrives = arrives($cut{contents});
				$cut{count}{ $arrives ? 'units arrived' : 'units lost' }++;
				next if $arrives;
				substr($x, $unit, length $new) = substr($old, 0, length $new);
				$changed = 1;
			}
			next if !$changed;
			sysseek($live, $at, 0);
			syswrite($live, $x) == length $x or die "$path: $!";
		}
		# what was cut off, but not durably, is there again
		for (my $at = $live_size; $at < $size && $shadow; $at += 65536)
		{
			sysseek($shadow, $at, 0);
			sysread($shadow, my $y, $size - $at < 65536 ? $size - $at : 65536);
			sysseek($live, $at, 0);
			syswrite($live, $y) == length $y or die "$path: $!";
		}
		close $live or die "$path: $!";
	}
	if ($size != $live_size)
	{
		$cut{count}{'lengths lost'}++;
		truncate($path, $size) or die "$path: $!";
	}
	return;
}

# Build the directory with this inode, as the cut leaves it.
sub rebuild
{
	my ($inode, $to) = @_;
	my $live = $cut{live}{$inode};
	my $after = names_after(durable_names($inode), $live ? live_names($live) : {});
	mkdir $to, 0700 or die "$to: $!";
	for my $name (sort keys %$after)
	{
		my ($kind, $what) = $after->{$name} =~ /^(.)(.*)$/s;
		if ($kind eq 'l') { symlink $what, "$to/$name" or die "$to/$name: $!"; }
		elsif ($kind eq 'd') { rebuild($what, "$to/$name"); }
		elsif ($cut{built}{$what}) { link $cut{built}{$what}, "$to/$name" or die "$to/$name: $!"; }
		else
		{
			if ($cut{live}{$what})
			{
				link $cut{live}{$what}, "$to/$name" or die "$to/$name: $!";
				merge($what, "$to/$name");
			}
			else
			{
				open(my $fh, '>', "$to/$name") or die "$to/$name: $!";
				chmod 0600, $fh;
				close $fh;
				$cut{count}{'files back'}++;
				my $durable = "$cut{shadow}/$what";
				system('cp', '--sparse=always', '--no-preserve=all', $durable, "$to/$name") == 0 or die "cp failed" if -e $durable;
			}
			$cut{built}{$what} = "$to/$name";
		}
	}
	return;
}

# The units of a server with these settings.  full_page_writes = off promises that
# pages are written as a whole, and persistent memory loses lines.  With wal_level =
# minimal an unpatched server depends on whole pages, too: CREATE DATABASE (wal_log)
# copies pages without WAL and with their LSN, which may be beyond the redo point, so the
# next change of the copy has no full page image.
#
# The third value: may names and lengths be lost?  A checkpoint does not write a table that
# is dropped meanwhile.  If a power cut brings its file back, redo meets pages that lack
# changes from before the redo point.  Only full page images mend that, so without them an
# unpatched server does not start, either.
sub cut_units
{
	my ($conf) = @_;
	my $images = ($conf->{full_page_writes} // 'on') eq 'on';
	my $torn = $images && ($conf->{wal_level} // '') ne 'minimal';
	return ($torn ? 512 : 8192, ($conf->{wal_sync_method} // '') eq 'pmem' ? 64 : 512, $images);
}

# Simulates the power cut: replaces each root by what the next boot finds.  No process
# uses them any more.  $unit is how many bytes the disk writes as a whole, and
# $wal_unit the same for WAL.  The numbers are random, by rand(), but without $names all
# names arrive.
# Returns a text.
sub cut_files
{
	my ($shadow, $unit, $wal_unit, $names, @roots) = @_;
	%cut = (shadow => $shadow, unit => $unit, wal_unit => $wal_unit, names => share(), contents => share(), live => {}, built => {}, count => {});
	$cut{names} = 1024 if !$names;
	for my $root (@roots)
	{
		$cut{live}{ (stat $root)[1] } = $root;
		find_live($root);
	}
	for my $root (@roots)
	{
		rebuild((stat $root)[1], "$root.after");
	}
	for my $root (@roots)
	{
		remove_tree($root, { safe => 0 });
		rename("$root.after", $root) or die "$root: $!";
	}
	# nobody has written to files after a clean stop; to pg_control, the start looks itself
	find({ no_chdir => 1, wanted => sub { utime 0, 0, $_ if !-l && !m{/pg_control$} } }, @roots);
	return sprintf('names %d/1024, contents %d/1024 in units of %d, of WAL %d%s', @cut{qw(names contents unit wal_unit)},
		join('', map { ", $_: $cut{count}{$_}" } sort keys %{ $cut{count} }));
}

1;
